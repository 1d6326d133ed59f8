//! Live reads: what verdicts have to know for sure is asked of the API server.
//!
//! ```text
//!  threads that answer reviews          │ threads of the cluster side
//!                                       │
//!  verdict.confirm ─► Reader::read ─────┼─► desk: shares equal reads, bounds
//!        ▲                              │     │    how many run and wait
//!        │                              │     ▼
//!  Gathered::add ◄── answers ◄──────────┼── exchange: GETs, pages, 404 rules
//! ```
//!
//! An answer reflects everything that was stored before the question, and
//! comes before the deadline, if only as words that say that nothing came.

mod desk;
mod exchange;
mod gathered;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time;

use desk::{Bounds, Desk};
pub use exchange::{Found, not_found};
use exchange::{Known, Transport, carry_out};
pub use gathered::{Answer, Gathered, merge};

use super::context::Context;
use super::exemption;
use super::world::SharedWorld;
use crate::decide::{LiveRead, Revoked};
use crate::policy::api::DeletionApproval;
use crate::telemetry::Metrics;

const BOUNDS: Bounds = Bounds { running: 32, waiting: 1024 };

/// What is said to whoever comes when too much is waited for.
const TOO_MANY: &str = "too many reads of the API server wait already";

/// What is said when the cluster side has ended.
const ENDED: &str = "belay is ending";

/// What verdicts have the cluster side do.
pub trait CarryOut: Send + Sync {
    /// Carries reads out by this time, each with an answer.
    fn read(&self, reads: Vec<LiveRead>, until: Instant) -> LocalBoxFuture<'_, Vec<Answer>>;

    /// Writes an approval of belay's own down by this time, or says why it
    /// could not.
    fn record(
        &self,
        approval: DeletionApproval,
        until: Instant,
    ) -> LocalBoxFuture<'_, Result<(), String>>;

    /// Deletes such an approval by this time, or says why it could not.
    fn revoke(&self, record: Revoked, until: Instant) -> LocalBoxFuture<'_, Result<(), String>>;
}

/// The handle of the task that talks to the API server. Cheap to clone; other
/// threads with runtimes of their own may wait for its answers.
#[derive(Clone)]
pub struct Reader {
    errands: mpsc::Sender<Errand>,
    metrics: Metrics,
}

/// What the task is sent.
enum Errand {
    Read(LiveRead, Waiter),
    Write(Write, Instant, oneshot::Sender<Result<(), String>>),
}

/// A write about the record of an exemption.
#[derive(Debug)]
enum Write {
    Record(Box<DeletionApproval>),
    Revoke(Revoked),
}

/// Somebody who waits for a read.
#[derive(Debug)]
struct Waiter {
    until: Instant,
    answer: oneshot::Sender<Result<Found, String>>,
}

impl Reader {
    /// Starts the task, on the runtime that this is called in: the cluster
    /// side's. It ends with that runtime, or when nobody can ask any more; it
    /// answers while belay drains, too.
    pub fn new(context: Context) -> Self {
        let Context { client, world, metrics, .. } = context;
        let api = client.clone();
        let write = move |write: Write| {
            let api = api.clone();
            async move {
                match write {
                    Write::Record(approval) => exemption::write(&api, &approval).await,
                    Write::Revoke(record) => exemption::revoke(&api, &record).await,
                }
            }
        };
        Self::start(client, world, metrics, write)
    }

    fn start<T, F, W>(transport: T, world: SharedWorld, metrics: Metrics, write: W) -> Self
    where
        T: Transport,
        F: Future<Output = Result<(), String>> + Send + 'static,
        W: Fn(Write) -> F + Send + 'static,
    {
        let (errands, asked) = mpsc::channel(BOUNDS.waiting);
        tokio::spawn(serve(transport, world, write, asked));
        Self { errands, metrics }
    }

    /// The same, for whoever lives on the cluster side.
    pub async fn read_all(&self, reads: Vec<LiveRead>, until: Instant) -> Vec<Answer> {
        let asked = time::Instant::now();
        let limit = until.saturating_duration_since(asked.into_std());
        let late = || format!("the API server did not answer within {} ms", limit.as_millis());
        // All are asked before any is waited for.
        let reads: Vec<_> = reads.into_iter().map(|read| (self.ask(&read, until), read)).collect();
        let mut answers = Vec::with_capacity(reads.len());
        for (waited, read) in reads {
            let (result, answer) = match waited {
                Err(words) => ("refused", Err(words.to_owned())),
                Ok(answer) => match time::timeout_at(until.into(), answer).await {
                    Ok(Ok(Ok(found))) => ("ok", Ok(found)),
                    Ok(Ok(Err(words))) => ("failed", Err(words)),
                    Ok(Err(_)) => ("refused", Err(ENDED.to_owned())),
                    Err(_) => ("late", Err(late())),
                },
            };
            self.metrics.read_live(result, asked.elapsed());
            answers.push((read, answer));
        }
        answers
    }

    fn ask(
        &self,
        read: &LiveRead,
        until: Instant,
    ) -> Result<oneshot::Receiver<Result<Found, String>>, &'static str> {
        let (answer, waited) = oneshot::channel();
        self.send(Errand::Read(read.clone(), Waiter { until, answer }))?;
        Ok(waited)
    }

    fn send(&self, errand: Errand) -> Result<(), &'static str> {
        self.errands.try_send(errand).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => TOO_MANY,
            mpsc::error::TrySendError::Closed(_) => ENDED,
        })
    }

    async fn write(&self, write: Write, until: Instant) -> Result<(), String> {
        let (answer, written) = oneshot::channel();
        self.send(Errand::Write(write, until, answer))?;
        match time::timeout_at(until.into(), written).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(ENDED.to_owned()),
            Err(_) => Err("the API server did not answer in time".to_owned()),
        }
    }
}

impl CarryOut for Reader {
    fn read(&self, reads: Vec<LiveRead>, until: Instant) -> LocalBoxFuture<'_, Vec<Answer>> {
        Box::pin(self.read_all(reads, until))
    }

    fn record(
        &self,
        approval: DeletionApproval,
        until: Instant,
    ) -> LocalBoxFuture<'_, Result<(), String>> {
        Box::pin(self.write(Write::Record(Box::new(approval)), until))
    }

    fn revoke(&self, record: Revoked, until: Instant) -> LocalBoxFuture<'_, Result<(), String>> {
        Box::pin(self.write(Write::Revoke(record), until))
    }
}

/// The task: errands in, requests to the API server out, in bounded number.
async fn serve<T, F, W>(
    transport: T,
    world: SharedWorld,
    write: W,
    mut errands: mpsc::Receiver<Errand>,
) where
    T: Transport,
    F: Future<Output = Result<(), String>> + Send + 'static,
    W: Fn(Write) -> F,
{
    let mut desk: Desk<Waiter> = Desk::new(BOUNDS);
    let mut running = JoinSet::new();
    let mut names = HashMap::new();
    let mut writes = JoinSet::new();
    let mut arrived = Vec::new();
    loop {
        while let Some((read, waiters)) = desk.begin(|waiter| !waiter.answer.is_closed()) {
            // As long as anybody waits; by then each has given up by itself.
            let until = waiters.iter().map(|waiter| waiter.until).max();
            let (transport, world, name) = (transport.clone(), world.clone(), read.clone());
            let task = running.spawn(async move {
                let known = Known::of(&world.read(), &read);
                let until = until.map_or_else(time::Instant::now, time::Instant::from_std);
                let reading = carry_out(&transport, known.as_ref(), &read);
                let late = |_| Err("the API server did not answer in time".to_owned());
                time::timeout_at(until, reading).await.unwrap_or_else(late)
            });
            names.insert(task.id(), name);
        }
        tokio::select! {
            // All that have come by now, before the next read begins.
            number = errands.recv_many(&mut arrived, BOUNDS.waiting) => if number == 0 {
                return;
            },
            Some(ended) = running.join_next_with_id() => {
                let (task, answer) = match ended {
                    Ok((task, answer)) => (task, answer),
                    Err(error) => (error.id(), Err("the read broke off".to_owned())),
                };
                if let Some(read) = names.remove(&task) {
                    for waiter in desk.end(&read) {
                        let _ = waiter.answer.send(answer.clone());
                    }
                }
            }
            Some(_) = writes.join_next() => {}
        }
        for errand in arrived.drain(..) {
            match errand {
                Errand::Read(read, waiter) => {
                    if let Err(waiter) = desk.ask(read, waiter) {
                        // Whoever has gone needs no answer.
                        let _ = waiter.answer.send(Err(TOO_MANY.to_owned()));
                    }
                }
                Errand::Write(_, _, answer) if writes.len() >= BOUNDS.running => {
                    let _ = answer.send(Err(TOO_MANY.to_owned()));
                }
                Errand::Write(change, until, answer) => {
                    let writing = time::timeout_at(until.into(), write(change));
                    writes.spawn(async move {
                        if let Ok(result) = writing.await {
                            let _ = answer.send(result);
                        }
                    });
                }
            }
        }
    }
}
