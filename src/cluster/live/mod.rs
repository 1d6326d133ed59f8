//! Live reads: what verdicts have to know for sure is asked of the API server.
//!
//! ```text
//!  threads that answer reviews          │ threads of the cluster side
//!                                       │
//!  verdict.confirm ─► Reader::read ─────┼─► queue: shares equal reads, bounds
//!        ▲                              │     │     how many run and wait, gives
//!        │                              │     │     each namespace its turn
//!        │                              │     ▼
//!  CollectedReads::add ◄── answers ◄──────────┼── api_reads: GETs, pages, 404 rules
//!                                       │     └── memory: one budget for all
//! ```
//!
//! An answer reflects everything that was stored before the question, and
//! comes before the deadline, if only as words that say that nothing came.

mod api_reads;
mod collected;
mod confirm;
mod memory;
mod queue;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Instant;

use crate::cluster::pace::within_limit;
use crate::objects::ApiError;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time;

pub use api_reads::ReadObjects;
use api_reads::{ApiReads, KindToRead};
pub use collected::{CollectedReads, ReadAnswer, ReleasedObject, merge};
pub use confirm::{Confirm, Unconfirmed, confirm};
use memory::LIVE_READS;
pub use memory::{MemoryLimits, ReadMemory, ReservedMemory};
pub use queue::ReadGroup;
use queue::{QueueLimits, ReadQueue};

use super::context::Context;
use super::exemption;
use super::list::Buffers;
use super::world::SharedWorld;
use crate::decide::{LiveRead, RevokedRecord};
use crate::policy::api::DeletionApproval;
use crate::telemetry::Metrics;
use crate::webhook::fair::GroupLimits;

const BOUNDS: QueueLimits = QueueLimits {
    running: GroupLimits { total: 32, per_group: 16 },
    waiting: GroupLimits { total: 1024, per_group: 512 },
};

/// The error for a request that comes when too many reads are waiting.
fn too_many() -> ApiError {
    ApiError::Other("too many reads of the API server wait already".to_owned())
}

/// What is said when the cluster side has ended.
fn ended() -> ApiError {
    ApiError::Other("belay is ending".to_owned())
}

/// What verdicts have the cluster side do.
pub trait LiveApi: Send + Sync {
    /// Carries reads out by this time, each with an answer. Those of different
    /// groups are carried out in turn.
    fn read<'a>(
        &'a self,
        group: &'a ReadGroup,
        reads: Vec<LiveRead>,
        until: Instant,
    ) -> LocalBoxFuture<'a, Vec<ReadAnswer>>;

    /// Writes an approval of belay's own down by this time, or says why it
    /// could not.
    fn record(
        &self,
        approval: DeletionApproval,
        until: Instant,
    ) -> LocalBoxFuture<'_, Result<(), ApiError>>;

    /// Deletes such an approval by this time, or says why it could not.
    fn revoke(
        &self,
        record: RevokedRecord,
        until: Instant,
    ) -> LocalBoxFuture<'_, Result<(), ApiError>>;
}

/// The handle of the task that talks to the API server. Cheap to clone; other
/// threads with runtimes of their own may wait for its answers.
#[derive(Clone)]
pub struct Reader {
    commands: mpsc::Sender<ReaderCommand>,
    memory: ReadMemory,
    metrics: Metrics,
}

/// What the task is sent.
enum ReaderCommand {
    Read(ReadGroup, LiveRead, ReadWaiter),
    Write(ExemptionWrite, Instant, oneshot::Sender<Result<(), ApiError>>),
}

/// A write about the record of an exemption.
#[derive(Debug)]
enum ExemptionWrite {
    Record(Box<DeletionApproval>),
    Revoke(RevokedRecord),
}

impl ExemptionWrite {
    async fn carry_out(&self, client: &kube::Client) -> Result<(), ApiError> {
        match self {
            Self::Record(approval) => exemption::write(client, approval).await,
            Self::Revoke(record) => exemption::revoke(client, record).await,
        }
    }
}

/// A caller that waits for a read.
#[derive(Debug)]
struct ReadWaiter {
    until: Instant,
    answer: oneshot::Sender<Result<ReadObjects, ApiError>>,
}

impl Reader {
    /// Starts the task on the current runtime, which is that of the cluster side. The task ends
    /// with that runtime, or when the last sender is dropped. It also answers while belay
    /// drains.
    pub fn new(context: Context) -> Self {
        let Context { client, world, metrics, .. } = context;
        let (commands, asked) = mpsc::channel(BOUNDS.waiting.total);
        let memory = ReadMemory::new(LIVE_READS);
        tokio::spawn(serve(client, world, memory.clone(), asked));
        Self { commands, memory, metrics }
    }

    /// The memory for large objects that are being read.
    pub fn buffers(&self) -> Buffers {
        self.memory.buffers.clone()
    }

    /// The same, for callers on the cluster side.
    pub async fn read_all(
        &self,
        group: &ReadGroup,
        reads: Vec<LiveRead>,
        until: Instant,
    ) -> Vec<ReadAnswer> {
        let asked = time::Instant::now();
        let limit = until.saturating_duration_since(asked.into_std());
        // All are asked before any is waited for.
        let mut waiting = Vec::with_capacity(reads.len());
        for read in reads {
            waiting.push((self.ask(group, &read, until).await, read));
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for (waited, read) in waiting {
            let (result, answer) = match waited {
                Err(error) => ("refused", Err(error)),
                Ok(answer) => match time::timeout_at(until.into(), answer).await {
                    Ok(Ok(Ok(found))) => ("ok", Ok(found)),
                    Ok(Ok(Err(error))) => ("failed", Err(error)),
                    Ok(Err(_)) => ("refused", Err(ended())),
                    Err(_) => ("late", Err(ApiError::TimedOut(limit))),
                },
            };
            self.metrics.read_live(result, asked.elapsed());
            answers.push((read, answer));
        }
        self.make_room(group, answers, until).await
    }

    /// Waits for the memory that the graph takes which is made of answers: each
    /// of those who share an answer makes its own.
    async fn make_room(
        &self,
        group: &ReadGroup,
        mut answers: Vec<ReadAnswer>,
        until: Instant,
    ) -> Vec<ReadAnswer> {
        let found = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        let bytes: usize = found.map(ReadObjects::bytes).sum();
        if bytes == 0 {
            return answers;
        }
        let mut account = self.memory.account(group, until.into());
        let held = account.hold(bytes).await;
        let mut shares = account.into_shares();
        for (_, answer) in &mut answers {
            let Ok(found) = answer else { continue };
            match held {
                Ok(()) => {
                    let found = std::mem::take(found);
                    *answer = Ok(found.holding(std::mem::take(&mut shares)));
                }
                Err(why) if found.objects().len() > 0 => {
                    *answer = Err(ApiError::Other(why.to_owned()));
                }
                Err(_) => {}
            }
        }
        answers
    }

    async fn ask(
        &self,
        group: &ReadGroup,
        read: &LiveRead,
        until: Instant,
    ) -> Result<oneshot::Receiver<Result<ReadObjects, ApiError>>, ApiError> {
        let (answer, waited) = oneshot::channel();
        let command =
            ReaderCommand::Read(group.clone(), read.clone(), ReadWaiter { until, answer });
        self.send(command, until).await?;
        Ok(waited)
    }

    /// Those who send get their turn, so that a caller with much to send does
    /// not keep others out.
    async fn send(&self, command: ReaderCommand, until: Instant) -> Result<(), ApiError> {
        match time::timeout_at(until.into(), self.commands.send(command)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ended()),
            Err(_) => Err(too_many()),
        }
    }

    async fn write(&self, write: ExemptionWrite, until: Instant) -> Result<(), ApiError> {
        let limit = until.saturating_duration_since(Instant::now());
        let (answer, written) = oneshot::channel();
        self.send(ReaderCommand::Write(write, until, answer), until).await?;
        match time::timeout_at(until.into(), written).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(ended()),
            Err(_) => Err(ApiError::TimedOut(limit)),
        }
    }
}

impl LiveApi for Reader {
    fn read<'a>(
        &'a self,
        group: &'a ReadGroup,
        reads: Vec<LiveRead>,
        until: Instant,
    ) -> LocalBoxFuture<'a, Vec<ReadAnswer>> {
        Box::pin(self.read_all(group, reads, until))
    }

    fn record(
        &self,
        approval: DeletionApproval,
        until: Instant,
    ) -> LocalBoxFuture<'_, Result<(), ApiError>> {
        Box::pin(self.write(ExemptionWrite::Record(Box::new(approval)), until))
    }

    fn revoke(
        &self,
        record: RevokedRecord,
        until: Instant,
    ) -> LocalBoxFuture<'_, Result<(), ApiError>> {
        Box::pin(self.write(ExemptionWrite::Revoke(record), until))
    }
}

/// The task: commands in, requests to the API server out, in bounded number.
async fn serve(
    client: kube::Client,
    world: SharedWorld,
    memory: ReadMemory,
    mut commands: mpsc::Receiver<ReaderCommand>,
) {
    let mut queue: ReadQueue<ReadWaiter> = ReadQueue::new(BOUNDS);
    let mut running = JoinSet::new();
    let mut names = HashMap::new();
    let mut writes = JoinSet::new();
    let mut arrived = Vec::new();
    loop {
        while let Some((read, group, waiters)) = queue.begin(|waiter| !waiter.answer.is_closed()) {
            // As long as a request waits; by then each has reached its own time limit.
            let until = waiters.iter().map(|waiter| waiter.until).max();
            let (client, world, name) = (client.clone(), world.clone(), read.clone());
            let (memory, group) = (memory.clone(), group.clone());
            let task = running.spawn(async move {
                let known = KindToRead::find(&world.read(), &read);
                let until = until.map_or_else(time::Instant::now, time::Instant::from_std);
                let (client, memory, group) = (&client, &memory, &group);
                let api_reads = ApiReads { client, memory, group, until };
                let reading = api_reads.carry_out(known.as_ref(), &read);
                let limit = until.duration_since(time::Instant::now());
                within_limit(limit, reading).await
            });
            names.insert(task.id(), name);
        }
        tokio::select! {
            // All that have come by now, before the next read begins.
            number = commands.recv_many(&mut arrived, BOUNDS.waiting.total) => if number == 0 {
                return;
            },
            Some(ended) = running.join_next_with_id() => {
                let (task, answer) = match ended {
                    Ok((task, answer)) => (task, answer),
                    Err(error) => (error.id(), Err(ApiError::Other("the read broke off".to_owned()))),
                };
                if let Some(read) = names.remove(&task) {
                    for waiter in queue.end(&read) {
                        let _ = waiter.answer.send(answer.clone());
                    }
                }
            }
            Some(_) = writes.join_next() => {}
        }
        for command in arrived.drain(..) {
            match command {
                ReaderCommand::Read(group, read, waiter) => {
                    if let Some(waiter) = queue.ask(&group, read, waiter) {
                        // A caller that is gone needs no answer.
                        let _ = waiter.answer.send(Err(too_many()));
                    }
                }
                ReaderCommand::Write(_, _, answer) if writes.len() >= BOUNDS.running.total => {
                    let _ = answer.send(Err(too_many()));
                }
                ReaderCommand::Write(change, until, answer) => {
                    let client = client.clone();
                    writes.spawn(async move {
                        let writing = time::timeout_at(until.into(), change.carry_out(&client));
                        if let Ok(result) = writing.await {
                            let _ = answer.send(result);
                        }
                    });
                }
            }
        }
    }
}
