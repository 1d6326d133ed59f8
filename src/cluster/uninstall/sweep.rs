//! Looks at every object there is, once, and takes the hold off what is not
//! Terminating, nor about to be because its owner or Namespace is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use json_patch::Patch;
use serde_json::Value;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use super::Manners;
use super::kinds::Look;
use super::leaving::Leaving;
use super::news::{Left, News, Tally, Why};
use super::plan::{Step, mentions_hold, plan};
use crate::cluster::api;
use crate::cluster::api::Detail;
use crate::cluster::list::{Buffers, ListQuery, ListReader};
use crate::cluster::pace::{Backoff, within};
use crate::cluster::release::Target as At;
use crate::hold::Answer;
use crate::objects::{ApiError, KindInfo, ObjectRef, read_shallow};
use crate::timing::Timing;

/// How often one write, or one page, is tried.
const TRIES: usize = 5;

/// What a sweep came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many holds it has met.
    pub met: usize,
    /// On what.
    pub seen: BTreeSet<ObjectRef>,
    /// How many it has taken off.
    pub released: usize,
    /// What is Terminating under the hold, or about to be.
    pub waiting: BTreeSet<ObjectRef>,
    /// What has its hold still, though it is not Terminating.
    pub left: BTreeMap<ObjectRef, Why>,
    /// Kinds that may be held and could not be listed.
    pub unread: Vec<(String, String)>,
    /// Others that could not.
    pub skipped: Vec<String>,
}

/// Who sweeps.
pub struct Sweeper<'a> {
    client: &'a kube::Client,
    tell: &'a dyn Fn(News),
    manners: Manners,
    leaving: Leaving<'a>,
    pace: Interval,
    /// How often it is told how far it is.
    progress: Duration,
    told: Instant,
    /// Since when.
    pub began: Instant,
    /// What was done so far.
    pub tally: Tally,
    kinds_left: usize,
    swept: Swept,
}

/// What became of one object.
enum Became {
    Released,
    /// The same, though it was on its way out because of this.
    Abandoned(Why),
    /// It is gone, or its hold is.
    Free,
    Waits,
    Left(Why),
}

impl<'a> Sweeper<'a> {
    pub fn new(
        client: &'a kube::Client,
        timing: &Timing,
        manners: Manners,
        tell: &'a dyn Fn(News),
    ) -> Self {
        let mut pace = interval(timing.holds.patch);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (tally, swept) = (Tally::default(), Swept::default());
        let (leaving, now) = (Leaving::new(client, timing.uninstall.fresh), Instant::now());
        let (told, began, progress) = (now, now, timing.uninstall.progress);
        let kinds_left = 0;
        Self {
            client,
            tell,
            manners,
            leaving,
            pace,
            progress,
            told,
            began,
            tally,
            kinds_left,
            swept,
        }
    }

    /// Whether the time is up: what has its hold still is counted, and keeps
    /// it, so that this ends before whoever waits for it gives up.
    fn is_late(&self) -> bool {
        self.manners.limit.is_some_and(|limit| self.began.elapsed() > limit)
    }

    /// Looks at all objects of these kinds.
    pub async fn sweep(&mut self, looks: &[Look]) -> Swept {
        for (done, look) in looks.iter().enumerate() {
            self.kinds_left = looks.len() - done;
            match self.kind(&look.info).await {
                // Nobody serves it any more.
                Ok(()) | Err(ApiError::NotFound) => {}
                Err(error) if look.may_be_held => {
                    self.swept.unread.push((look.info.full_name(), error.to_string()));
                }
                Err(_) => self.swept.skipped.push(look.info.full_name()),
            }
        }
        self.kinds_left = 0;
        std::mem::take(&mut self.swept)
    }

    /// All objects of a kind, page by page. A list whose pages the API server
    /// no longer has begins again: what was done is not in it any more.
    async fn kind(&mut self, info: &KindInfo) -> Result<(), ApiError> {
        let query = ListQuery { info, namespace: "", detail: Detail::Metadata, labels: "" };
        let mut list = ListReader::new(self.client, query, Buffers::new(1));
        let mut failures = 0;
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));
        loop {
            let released = self.swept.released;
            let page = match within(list.next_page(mentions_hold)).await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(()),
                Err(error @ (ApiError::NotFound | ApiError::Forbidden(_))) => return Err(error),
                Err(error) => {
                    failures += 1;
                    if failures == TRIES {
                        return Err(error);
                    }
                    sleep(backoff.next()).await;
                    continue;
                }
            };
            for json in &page {
                // The API server wrote it: what is no object has no hold.
                let Ok(value) = read_shallow(json) else { continue };
                self.object(info, &value).await;
            }
            self.progress();
            if self.swept.released > released {
                failures = 0;
            }
        }
    }

    async fn object(&mut self, info: &KindInfo, value: &Value) {
        let Some((plan, namespace, name)) = plan(value) else { return };
        let target = ObjectRef::of_kind(info, &namespace, &name);
        let became = match plan {
            Step::Nothing => return,
            Step::Waits => Became::Waits,
            Step::TakeOff(_) if self.manners.dry_run && self.goes(value).await => Became::Waits,
            Step::TakeOff(_) if self.manners.dry_run => Became::Left(Why::Untouched),
            Step::TakeOff(_) if self.is_late() => Became::Left(Why::Late),
            Step::TakeOff(patch) => {
                let (info, detail, buffers) = (info.clone(), Detail::Metadata, Buffers::new(1));
                let at = At { info, namespace, name, detail, buffers };
                self.take_off(&at, patch, value).await
            }
        };
        self.swept.met += 1;
        self.swept.seen.insert(target.clone());
        match became {
            Became::Abandoned(why) => {
                self.swept.released += 1;
                self.tally.abandoned += 1;
                self.swept.left.remove(&target);
                (self.tell)(News::Abandoned(Left { target, why }));
            }
            Became::Released => {
                self.swept.released += 1;
                self.tally.released += 1;
                self.swept.left.remove(&target);
            }
            Became::Free => drop(self.swept.left.remove(&target)),
            Became::Waits => drop(self.swept.waiting.insert(target)),
            Became::Left(why) => drop(self.swept.left.insert(target, why)),
        }
        self.progress();
    }

    /// Whether an object that is not Terminating is left until it is: who has
    /// its owner or its Namespace taken away waits for those who use it.
    async fn goes(&self, object: &Value) -> bool {
        !self.manners.abandon && self.leaving.why(object).await.is_some()
    }

    /// Takes the hold off one object that is not Terminating.
    async fn take_off(&mut self, at: &At, mut patch: Patch, object: &Value) -> Became {
        let going = self.leaving.why(object).await;
        if going.is_some() && !self.manners.abandon {
            return Became::Waits;
        }
        let off = || going.clone().map_or(Became::Released, Became::Abandoned);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        for _ in 0..TRIES {
            self.pace.tick().await;
            match at.patch(self.client, &patch).await.0 {
                Answer::Done(_) => return off(),
                Answer::Missing { namespace: true } => return Became::Left(Why::Stranded),
                Answer::Missing { namespace: false } => return Became::Free,
                Answer::Failed(why) => return Became::Left(Why::Refused(why.to_string())),
                // Somebody else has written, or nobody knows what came of it.
                Answer::Refused | Answer::Lost => {}
            }
            match at.get(self.client).await {
                (Answer::Done(_), Some(value)) => match plan(&value).map(|(plan, ..)| plan) {
                    Some(Step::TakeOff(_)) if self.goes(&value).await => return Became::Waits,
                    Some(Step::TakeOff(again)) => patch = again,
                    Some(Step::Waits) => return Became::Waits,
                    Some(Step::Nothing) | None => return Became::Free,
                },
                (Answer::Missing { .. }, _) => return Became::Free,
                _ => {}
            }
            sleep(backoff.next()).await;
        }
        // What the API server has to say of it is worth one more request.
        let place = (at.namespace.as_str(), at.name.as_str());
        match within(api::patch(self.client, &at.info, place, &patch)).await {
            Ok(()) => off(),
            Err(ApiError::NotFound) => Became::Free,
            Err(error) => Became::Left(Why::Refused(error.to_string())),
        }
    }

    fn progress(&mut self) {
        if self.told.elapsed() >= self.progress {
            self.told = Instant::now();
            (self.tell)(News::Progress(self.tally, self.kinds_left));
        }
    }
}
