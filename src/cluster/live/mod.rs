//! Live reads: belay reads from the API server the objects that a verdict must be sure about.
//!
//! ```text
//!  threads that answer reviews          │ threads of the cluster side
//!                                       │
//!  needed_reads ────► Reader::read ─────┼─► queue: shares equal reads, bounds
//!        ▲                              │     │     how many run and wait, gives
//!        │                              │     │     each namespace its turn
//!        │                              │     ▼
//!  CollectedReads::add ◄── answers ◄────┼── api_reads: GETs, pages, 404 rules
//!                                       │     └── memory: one budget for all
//! ```
//!
//! An answer reflects everything that was stored before the request. It arrives before the
//! deadline. If the read failed, it is an error.

mod api_reads;
mod collected;
mod memory;
mod question;
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

pub use api_reads::LiveObjects;
use api_reads::{ApiReads, KindToRead};
pub use collected::{CollectedReads, ReadAnswer, TargetBody, merge};
use memory::LIVE_READ_LIMITS;
pub use memory::{MemoryLimits, ReadMemory, ReservedMemory};
pub use question::{LiveQuestion, Unconfirmed, answer_with_reads};
pub use queue::ReadGroup;
use queue::{QueueLimits, ReadQueue};

use super::context::Context;
use super::exemption;
use super::list::Buffers;
use super::world::SharedWorld;
use crate::decide::{LiveRead, Operation};
use crate::policy::Approval;
use crate::policy::api::DeletionApproval;
use crate::telemetry::Metrics;
use crate::webhook::fair::{FairSemaphore, GroupLimits};

const LIMITS: QueueLimits = QueueLimits {
    running: GroupLimits { total: 32, per_group: 16 },
    waiting: GroupLimits { total: 1024, per_group: 512 },
};

/// The error for a request that comes when too many reads are waiting.
fn too_many() -> ApiError {
    ApiError::Other("too many reads of the API server wait already".to_owned())
}

/// The error for a request that comes while belay shuts down.
fn shutting_down() -> ApiError {
    ApiError::Other("belay is shutting down".to_owned())
}

/// The requests to the API server that a verdict needs.
pub trait LiveApi: Send + Sync {
    /// Carries out the reads before the deadline, and returns one answer for each. Groups take
    /// turns.
    fn read<'a>(
        &'a self,
        group: &'a ReadGroup,
        reads: Vec<LiveRead>,
        deadline: Instant,
    ) -> LocalBoxFuture<'a, Vec<ReadAnswer>>;

    /// Counts a review whose verdict waited for reads.
    fn count_live_review(&self, operation: Operation);

    /// Writes the record of an exemption before the deadline. Groups take turns.
    fn write_record<'a>(
        &'a self,
        group: &'a ReadGroup,
        approval: DeletionApproval,
        deadline: Instant,
    ) -> LocalBoxFuture<'a, Result<(), ApiError>>;

    /// Reads the record with this name before the deadline. Groups take turns.
    fn read_record<'a>(
        &'a self,
        group: &'a ReadGroup,
        name: String,
        deadline: Instant,
    ) -> LocalBoxFuture<'a, Result<Option<Approval>, ApiError>>;
}

/// The handle of the task that sends live reads. Cheap to clone. Threads with runtimes of
/// their own may wait for its answers.
#[derive(Clone)]
pub struct Reader {
    commands: mpsc::Sender<ReaderCommand>,
    memory: ReadMemory,
    metrics: Metrics,
}

enum ReaderCommand {
    Read(ReadGroup, LiveRead, ReadWaiter),
    WriteRecord(ReadGroup, Box<DeletionApproval>, RecordWaiter<()>),
    ReadRecord(ReadGroup, String, RecordWaiter<Option<Approval>>),
}

/// A caller that waits for the write or the read of an exemption record.
struct RecordWaiter<T> {
    deadline: Instant,
    answer: oneshot::Sender<Result<T, ApiError>>,
}

impl<T> RecordWaiter<T> {
    /// Carries out the request in the turn of its group, and answers before the deadline.
    async fn carry_out(
        self,
        slots: FairSemaphore<ReadGroup>,
        group: ReadGroup,
        request: impl Future<Output = Result<T, ApiError>>,
    ) {
        let limit = self.deadline.saturating_duration_since(Instant::now());
        let in_turn = async {
            let _slot = slots.acquire(group).await;
            request.await
        };
        // Sending fails if the caller no longer waits.
        let _ = self.answer.send(within_limit(limit, in_turn).await);
    }
}

/// A caller that waits for a read.
#[derive(Debug)]
struct ReadWaiter {
    deadline: Instant,
    answer: oneshot::Sender<Result<LiveObjects, ApiError>>,
}

impl Reader {
    /// Starts the task on the current runtime, which must be the runtime of the cluster side. The
    /// task ends with this runtime, or when the last sender is dropped. It also answers while
    /// belay drains.
    pub fn new(context: Context) -> Self {
        let Context { client, world, metrics, .. } = context;
        let (commands, receiver) = mpsc::channel(LIMITS.waiting.total);
        let memory = ReadMemory::new(LIVE_READ_LIMITS);
        tokio::spawn(serve(client, world, memory.clone(), receiver));
        Self { commands, memory, metrics }
    }

    /// The memory for large objects that are being read.
    pub fn buffers(&self) -> Buffers {
        self.memory.buffers.clone()
    }

    /// Carries out [`LiveApi::read`], for callers on the cluster side.
    pub async fn read_all(
        &self,
        group: &ReadGroup,
        reads: Vec<LiveRead>,
        deadline: Instant,
    ) -> Vec<ReadAnswer> {
        let start = time::Instant::now();
        let limit = deadline.saturating_duration_since(start.into_std());
        // All reads are sent before the first wait.
        let mut waiting = Vec::with_capacity(reads.len());
        for read in reads {
            waiting.push((self.ask(group, &read, deadline).await, read));
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for (waited, read) in waiting {
            let (result, answer) = match waited {
                Err(error) => ("refused", Err(error)),
                Ok(answer) => match time::timeout_at(deadline.into(), answer).await {
                    Ok(Ok(Ok(found))) => ("ok", Ok(found)),
                    Ok(Ok(Err(error))) => ("failed", Err(error)),
                    Ok(Err(_)) => ("refused", Err(shutting_down())),
                    Err(_) => ("late", Err(ApiError::TimedOut(limit))),
                },
            };
            self.metrics.count_live_read(result, start.elapsed());
            answers.push((read, answer));
        }
        self.reserve_graph_memory(group, answers, deadline).await
    }

    /// Reserves the memory for the graph that is built from the answers. Callers that share an
    /// answer build a graph each.
    async fn reserve_graph_memory(
        &self,
        group: &ReadGroup,
        mut answers: Vec<ReadAnswer>,
        deadline: Instant,
    ) -> Vec<ReadAnswer> {
        let found = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        let bytes: usize = found.map(LiveObjects::bytes).sum();
        if bytes == 0 {
            return answers;
        }
        let mut account = self.memory.account(group, deadline.into());
        let reserved = account.reserve(bytes).await;
        let mut memory = account.into_reserved();
        for (_, answer) in &mut answers {
            let Ok(found) = answer else { continue };
            match reserved {
                Ok(()) => {
                    let found = std::mem::take(found);
                    *answer = Ok(found.with_reserved(std::mem::take(&mut memory)));
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
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Result<LiveObjects, ApiError>>, ApiError> {
        let (answer, waited) = oneshot::channel();
        let command =
            ReaderCommand::Read(group.clone(), read.clone(), ReadWaiter { deadline, answer });
        self.send(command, deadline).await?;
        Ok(waited)
    }

    /// Sends a command about an exemption record to the task, and waits for its answer.
    async fn await_record<T>(
        &self,
        command: impl FnOnce(RecordWaiter<T>) -> ReaderCommand,
        deadline: Instant,
    ) -> Result<T, ApiError> {
        let limit = deadline.saturating_duration_since(Instant::now());
        let (answer, answered) = oneshot::channel();
        self.send(command(RecordWaiter { deadline, answer }), deadline).await?;
        match time::timeout_at(deadline.into(), answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(shutting_down()),
            Err(_) => Err(ApiError::TimedOut(limit)),
        }
    }

    /// Sends a command to the task. The channel is fair, so a caller with many commands does not
    /// block others.
    async fn send(&self, command: ReaderCommand, deadline: Instant) -> Result<(), ApiError> {
        match time::timeout_at(deadline.into(), self.commands.send(command)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(shutting_down()),
            Err(_) => Err(too_many()),
        }
    }
}

impl LiveApi for Reader {
    fn read<'a>(
        &'a self,
        group: &'a ReadGroup,
        reads: Vec<LiveRead>,
        deadline: Instant,
    ) -> LocalBoxFuture<'a, Vec<ReadAnswer>> {
        Box::pin(self.read_all(group, reads, deadline))
    }

    fn count_live_review(&self, operation: Operation) {
        self.metrics.count_live_review(operation.as_str());
    }

    fn write_record<'a>(
        &'a self,
        group: &'a ReadGroup,
        approval: DeletionApproval,
        deadline: Instant,
    ) -> LocalBoxFuture<'a, Result<(), ApiError>> {
        let (group, approval) = (group.clone(), Box::new(approval));
        let command = |waiter| ReaderCommand::WriteRecord(group, approval, waiter);
        Box::pin(self.await_record(command, deadline))
    }

    fn read_record<'a>(
        &'a self,
        group: &'a ReadGroup,
        name: String,
        deadline: Instant,
    ) -> LocalBoxFuture<'a, Result<Option<Approval>, ApiError>> {
        let group = group.clone();
        let command = |waiter| ReaderCommand::ReadRecord(group, name, waiter);
        Box::pin(self.await_record(command, deadline))
    }
}

/// The task: it receives commands and sends a bounded number of requests to the API server.
async fn serve(
    client: kube::Client,
    world: SharedWorld,
    memory: ReadMemory,
    mut commands: mpsc::Receiver<ReaderCommand>,
) {
    let mut queue: ReadQueue<ReadWaiter> = ReadQueue::new(LIMITS);
    let mut running = JoinSet::new();
    let mut reads_by_task = HashMap::new();
    let [write_slots, read_slots] =
        [(); 2].map(|()| FairSemaphore::<ReadGroup>::new(LIMITS.running));
    let mut records = JoinSet::new();
    let mut received = Vec::new();
    loop {
        while let Some((read, group, waiters)) = queue.begin(|waiter| !waiter.answer.is_closed()) {
            // The read may take until the latest deadline of its waiters.
            let deadline = waiters.iter().map(|waiter| waiter.deadline).max();
            let (client, world, started_read) = (client.clone(), world.clone(), read.clone());
            let (memory, group) = (memory.clone(), group.clone());
            let task = running.spawn(async move {
                let kind = KindToRead::find(&world.read(), &read);
                let deadline = deadline.map_or_else(time::Instant::now, time::Instant::from_std);
                let (client, memory, group) = (&client, &memory, &group);
                let api_reads = ApiReads { client, memory, group, deadline };
                let reading = api_reads.carry_out(kind.as_ref(), &read);
                let limit = deadline.duration_since(time::Instant::now());
                within_limit(limit, reading).await
            });
            reads_by_task.insert(task.id(), started_read);
        }
        tokio::select! {
            // All received commands are queued before the next read starts.
            number = commands.recv_many(&mut received, LIMITS.waiting.total) => if number == 0 {
                return;
            },
            Some(ended) = running.join_next_with_id() => {
                let (task, answer) = match ended {
                    Ok((task, answer)) => (task, answer),
                    Err(error) => (error.id(), Err(ApiError::Other("the read broke off".to_owned()))),
                };
                if let Some(read) = reads_by_task.remove(&task) {
                    for waiter in queue.end(&read) {
                        let _ = waiter.answer.send(answer.clone());
                    }
                }
            }
            Some(_) = records.join_next() => {}
        }
        for command in received.drain(..) {
            match command {
                ReaderCommand::Read(group, read, waiter) => {
                    if let Some(waiter) = queue.ask(&group, read, waiter) {
                        // Sending fails if the caller no longer waits.
                        let _ = waiter.answer.send(Err(too_many()));
                    }
                }
                ReaderCommand::WriteRecord(group, approval, waiter) => {
                    let (client, slots) = (client.clone(), write_slots.clone());
                    records.spawn(async move {
                        let write = exemption::write(&client, &approval);
                        waiter.carry_out(slots, group, write).await;
                    });
                }
                ReaderCommand::ReadRecord(group, name, waiter) => {
                    let (client, slots) = (client.clone(), read_slots.clone());
                    records.spawn(async move {
                        let read = exemption::read(&client, &name);
                        waiter.carry_out(slots, group, read).await;
                    });
                }
            }
        }
    }
}
