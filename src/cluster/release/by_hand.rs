//! A release by hand: the same count and the same pass, for one target, with
//! the rights of the person who asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::requests::Target;
use super::settle;
use super::target::{Common, Driver, DriverReport, Mailbox, counted};
use crate::cluster::context::Context;
use crate::cluster::live::{
    CollectedReads, Confirm, Found, ReadGroup, Reader, ReleasedObject, confirm,
};
use crate::cluster::world::Place;
use crate::decide::LiveRead;
use crate::graph::StepBudget;
use crate::hold::{
    Answer, Count, End, HoldRemoval, PASS_STEPS, ROUNDS, ReleaseReason, TargetState, TokenWrite,
    UnknownUse, Waiting,
};
use crate::webhook::fair::Slots;

/// How long one round of reads may take.
const LIMIT: Duration = Duration::from_secs(15);

/// Finds who still counts, by live reads and without writes. A user who may read a kind in one
/// namespace learns only of the users of the object there. To learn that there are none, the
/// user has to have read access to everything.
pub async fn look(context: &Context, reader: &Reader, place: &Place, object: &Value) -> Count {
    let Some(released) = ReleasedObject::new(object) else {
        return Count::Unknown(UnknownUse::TargetUnread);
    };
    let mut count = CountByHand {
        context,
        reader,
        place,
        group: ReadGroup::Release(place.1.clone()),
        released,
        budget: StepBudget::new(PASS_STEPS),
        gathered: CollectedReads::new(&context.world.read()),
        lacks: None,
    };
    confirm(&mut count, ROUNDS.into()).await.unwrap_or(Count::Unknown(UnknownUse::TooManyRounds))
}

/// A count of who needs an object, with the rights of a person.
struct CountByHand<'a> {
    context: &'a Context,
    reader: &'a Reader,
    place: &'a Place,
    group: ReadGroup,
    released: ReleasedObject,
    budget: StepBudget,
    gathered: CollectedReads,
    /// The first list that could not be read.
    lacks: Option<UnknownUse>,
}

impl Confirm for CountByHand<'_> {
    type Answer = Count;

    async fn answer(&mut self) -> Option<(Count, Vec<LiveRead>)> {
        let target = (self.place.0, &self.released);
        let count = counted(&self.context.world, &mut self.gathered, target, &self.budget);
        Some(match (count, &self.lacks) {
            (Count::Read(reads), _) => (Count::Read(Vec::new()), reads),
            (Count::Free(ReleaseReason::Unused), Some(lacks)) => {
                (Count::Unknown(lacks.clone()), Vec::new())
            }
            (count, _) => (count, Vec::new()),
        })
    }

    async fn read(&mut self, reads: Vec<LiveRead>) {
        let Self { reader, group, .. } = &*self;
        let mut answers = reader.read_all(group, reads, Instant::now() + LIMIT).await;
        for (read, answer) in &mut answers {
            let (Err(why), LiveRead::List { .. }) = (&*answer, &*read) else { continue };
            let (resource, why) = (read.kind_name().to_string(), why.clone());
            self.lacks.get_or_insert(UnknownUse::PartlyListed { resource, why });
            // With a list that lacks something nothing is ever free.
            *answer = Ok(near(self.reader, &self.group, read).await);
        }
        self.gathered.add(answers);
    }
}

/// What a list has in this namespace, if that may be read.
async fn near(reader: &Reader, group: &ReadGroup, list: &LiveRead) -> Found {
    let ReadGroup::Release(namespace) = group else { return Found::default() };
    let mut near = list.clone();
    match &mut near {
        LiveRead::List { namespace: all, .. } if all.is_empty() && !namespace.is_empty() => {
            namespace.clone_into(all);
        }
        _ => return Found::default(),
    }
    let answers = reader.read_all(group, vec![near], Instant::now() + LIMIT).await;
    let found = answers.into_iter().next().and_then(|(_, answer)| answer.ok());
    found.unwrap_or_default()
}

/// How a release by hand came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The hold is off, or the object gone.
    Ended(End),
    /// It waits for this; none: nothing was found out in time.
    Waits(Option<Waiting>),
}

/// Drives the release of one target until it has ended or the time is up.
pub async fn drive(
    context: &Context,
    reader: &Reader,
    place: &Place,
    sight: TargetState,
    limit: Duration,
) -> Outcome {
    let settle = settle(&context.world.read(), place);
    if settle >= limit {
        let enough = enough(context, place).as_secs();
        let why = format!(
            "settleSeconds of its policies ({}), which each release waits for; --timeout={enough} \
             is enough",
            settle.as_secs()
        );
        return Outcome::Waits(Some(Waiting::Unknown(why.into())));
    }
    let common = Common::new(context.clone(), reader.clone(), Slots { all: 1, each: 1 });
    let target = Target::at(&context.world.read(), place);
    let mut driver = Driver::new(common, place.clone(), target, sight.uid.clone(), settle);
    let mailbox = Mailbox::default();
    mailbox.tell(|news| {
        (news.seen, news.look_by) = (Some(sight), Some(tokio::time::Instant::now()));
    });
    let word = parking_lot::Mutex::new(None);
    let running = driver.run(&mailbox, |_, said| *word.lock() = Some(said));
    let _late = tokio::time::timeout(limit, running).await;
    match word.into_inner() {
        Some(DriverReport::Ended(end)) => Outcome::Ended(end),
        Some(DriverReport::Waits(waiting)) => Outcome::Waits(Some(waiting)),
        None => Outcome::Waits(None),
    }
}

/// Removes the hold without a count; the caller has the approvals. It is the same removal as in
/// a release, so it changes only this very object, and only its hold. The error says what
/// happened.
pub async fn force(context: &Context, place: &Place, sight: TargetState) -> Result<(), String> {
    words(remove_hold(context, place, sight).await)
}

/// The same; what comes back is the answer to the last write.
pub async fn remove_hold(context: &Context, place: &Place, sight: TargetState) -> Answer {
    let target = Target::at(&context.world.read(), place);
    let client = &context.client;
    let token = Arc::from(context.settings.instance.as_str());
    match target.patch(client, &TokenWrite::new(sight, token).patch()).await.answer {
        Answer::Done(marked) => match HoldRemoval::of_target(&marked) {
            Some(removal) => target.patch(client, &removal.patch()).await.answer,
            // It is off: the version that was marked is the one that was seen.
            None => Answer::Done(marked),
        },
        other => other,
    }
}

/// The longest time that [`drive`] needs to release an object without users.
pub fn enough(context: &Context, place: &Place) -> Duration {
    settle(&context.world.read(), place) + Duration::from_secs(20)
}

fn words(answer: Answer) -> Result<(), String> {
    match answer {
        Answer::Done(_) | Answer::Missing { namespace: false } => Ok(()),
        Answer::Missing { namespace: true } => {
            Err("its Namespace is gone: nothing in it can be written until it is re-created".into())
        }
        Answer::Refused => Err("it was changed meanwhile, or the API server refuses it".into()),
        Answer::Lost => Err("the answer of the API server was lost".into()),
        Answer::Failed(why) => Err(why.to_string()),
    }
}
