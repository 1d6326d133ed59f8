//! The queue of live reads. Equal reads are shared, groups take turns, and the number of waiters
//! is limited.

use std::collections::HashMap;

use crate::decide::{Existence, LiveRead, Resource, Review, Situation, target_existence};
use crate::graph::Graph;
use crate::webhook::fair::{FairQueue, GroupLimits};

/// The cause of a read, or of a decision that takes much work. Groups take turns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReadGroup {
    /// Requests of all subjects about objects of a namespace, because a tenant may have many
    /// accounts.
    Namespace(String),
    /// Requests of all subjects about cluster-scoped objects of a resource, with its group. A caller
    /// that knows the uid of one such object can invent subjects.
    Resource(String, String),
    /// Requests about objects whose existence the graph does not prove, by namespace. A caller
    /// that invents objects delays only such requests. Empty: requests about objects in a missing
    /// Namespace or without one, because a caller can also invent namespaces and subjects.
    UnprovenObjects(String),
    /// Releases of objects of a namespace, or of cluster-scoped objects (empty).
    Release(String),
}

impl ReadGroup {
    /// The group of a request. Every field of a forged review can have any content.
    pub fn of(situation: &Situation<'_>, review: &Review<'_>) -> Self {
        let namespace = review.namespace.as_str();
        let exists = matches!(target_existence(situation, review), Existence::Exists);
        match namespace {
            "" if exists => {
                let Resource { group, resource, .. } = &review.resource;
                Self::Resource(group.to_string(), resource.to_string())
            }
            _ if exists => Self::Namespace(namespace.to_owned()),
            _ if is_missing(situation.graph, namespace) => Self::UnprovenObjects(String::new()),
            _ => Self::UnprovenObjects(namespace.to_owned()),
        }
    }

    /// The limit of waiters of this group, where `per_group` is the limit of most groups.
    fn max_waiting(&self, per_group: usize) -> usize {
        match self {
            Self::UnprovenObjects(namespace) if namespace.is_empty() => per_group.div_ceil(8),
            _ => per_group,
        }
    }
}

/// Whether the graph contains all Namespaces, and not this one.
fn is_missing(graph: &Graph, namespace: &str) -> bool {
    let kind = graph.kinds.namespace().filter(|kind| graph.is_complete(*kind));
    kind.is_some_and(|kind| graph.object(kind, "", namespace).is_none())
}

/// How many reads may run at once, and how many waiters may wait for reads that have not
/// started.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Each read sends one request at a time, so this is also the limit of concurrent requests to
    /// the API server.
    pub running: GroupLimits,
    /// Beyond this limit the queue rejects a waiter: the newest of the group with most waiters.
    pub waiting: GroupLimits,
}

/// Reads and their waiters.
///
/// An answer must reflect everything that was stored before the request. So no waiter joins a
/// running read. Later waiters share the next read until it starts.
#[derive(Debug)]
pub struct ReadQueue<W> {
    limits: QueueLimits,
    entries: HashMap<LiveRead, QueuedRead<W>>,
    /// Reads that can begin. A group waits for the read, and the same read is not running. A read
    /// that several groups wait for has one entry for each group.
    queue: FairQueue<ReadGroup, LiveRead>,
    /// The number of waiters of each group.
    waiting: HashMap<ReadGroup, usize>,
    /// The number of waiters of all groups.
    total_waiting: usize,
}

#[derive(Debug)]
struct QueuedRead<W> {
    /// The waiters of the running read, and the group whose turn it used.
    running: Option<(ReadGroup, Vec<W>)>,
    /// The waiters for the next read.
    pending: Vec<(ReadGroup, W)>,
}

impl<W> QueuedRead<W> {
    fn is_pending(&self, group: &ReadGroup) -> bool {
        self.pending.iter().any(|(other, _)| other == group)
    }
}

impl<W> ReadQueue<W> {
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            queue: FairQueue::new(limits.running),
            waiting: HashMap::new(),
            total_waiting: 0,
        }
    }

    /// Adds a waiter. If too many wait already, it returns the rejected waiter: this
    /// waiter, or a waiter of a group with more waiters.
    pub fn ask(&mut self, group: &ReadGroup, read: LiveRead, waiter: W) -> Option<W> {
        let waiting = self.waiting.get(group).copied().unwrap_or_default();
        if waiting >= group.max_waiting(self.limits.waiting.per_group) {
            return Some(waiter);
        }
        let mut rejected = None;
        if self.total_waiting >= self.limits.waiting.total {
            match self.reject_newest(waiting + 1) {
                None => return Some(waiter),
                other => rejected = other,
            }
        }
        *self.waiting.entry(group.clone()).or_default() += 1;
        self.total_waiting += 1;
        let entry = self
            .entries
            .entry(read.clone())
            .or_insert_with(|| QueuedRead { running: None, pending: Vec::new() });
        if entry.running.is_none() && !entry.is_pending(group) {
            self.queue.push(group, read);
        }
        entry.pending.push((group.clone(), waiter));
        rejected
    }

    /// Starts the next read, and returns it with its waiters. It drops reads whose waiters have
    /// all given up.
    pub fn begin(
        &mut self,
        is_waiting: impl Fn(&W) -> bool,
    ) -> Option<(LiveRead, &ReadGroup, &[W])> {
        loop {
            let (group, read) = self.queue.begin()?;
            let Some(entry) = self.entries.get_mut(&read) else {
                self.queue.end(&group);
                continue;
            };
            let pending = std::mem::take(&mut entry.pending);
            for (other, _) in &pending {
                count_down(&mut self.waiting, &mut self.total_waiting, other);
                self.queue.remove(other, |queued| *queued == read);
            }
            let waiters: Vec<W> =
                pending.into_iter().map(|(_, waiter)| waiter).filter(&is_waiting).collect();
            if waiters.is_empty() {
                self.entries.remove(&read);
                self.queue.end(&group);
                continue;
            }
            let entry = self.entries.get_mut(&read)?;
            let (group, waiters) = entry.running.insert((group, waiters));
            return Some((read, group, waiters));
        }
    }

    /// Ends a read, and returns its waiters.
    pub fn end(&mut self, read: &LiveRead) -> Vec<W> {
        let Some(entry) = self.entries.get_mut(read) else { return Vec::new() };
        let Some((group, waiters)) = entry.running.take() else { return Vec::new() };
        self.queue.end(&group);
        if entry.pending.is_empty() {
            self.entries.remove(read);
            return waiters;
        }
        let mut groups: Vec<&ReadGroup> = Vec::new();
        for (group, _) in &entry.pending {
            if !groups.contains(&group) {
                groups.push(group);
                self.queue.push(group, read.clone());
            }
        }
        waiters
    }

    /// Removes the newest waiter of the largest group, if that group has more than `more_than`
    /// waiters.
    fn reject_newest(&mut self, more_than: usize) -> Option<W> {
        let largest = self.waiting.iter().max_by_key(|(_, waiting)| **waiting);
        let (group, _) = largest.filter(|(_, waiting)| **waiting > more_than)?;
        let group = group.clone();
        let mut entries = self.entries.iter_mut();
        let (read, entry) = entries.find(|(_, entry)| entry.is_pending(&group))?;
        let index = entry.pending.iter().rposition(|(other, _)| *other == group)?;
        let (_, waiter) = entry.pending.remove(index);
        let read = read.clone();
        if !entry.is_pending(&group) {
            self.queue.remove(&group, |queued| *queued == read);
        }
        if entry.pending.is_empty() && entry.running.is_none() {
            self.entries.remove(&read);
        }
        count_down(&mut self.waiting, &mut self.total_waiting, &group);
        Some(waiter)
    }
}

/// Subtracts one waiter of a group.
fn count_down(waiting: &mut HashMap<ReadGroup, usize>, total: &mut usize, group: &ReadGroup) {
    *total = total.saturating_sub(1);
    if let Some(count) = waiting.get_mut(group) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            waiting.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::{AdmissionPhase, ObjectSource};
    use crate::policy::PolicySet;
    use crate::relations::Catalogue;
    use crate::webhook::{Parsed, parse_review};

    fn read(name: &str) -> LiveRead {
        LiveRead::Object(crate::objects::ObjectRef::new(("", "pods"), "a", name))
    }

    fn group_of(namespace: &str) -> ReadGroup {
        ReadGroup::Namespace(namespace.to_owned())
    }

    fn queue(running: (usize, usize), waiting: (usize, usize)) -> ReadQueue<usize> {
        let limits = |(total, per_group)| GroupLimits { total, per_group };
        ReadQueue::new(QueueLimits { running: limits(running), waiting: limits(waiting) })
    }

    fn begin(queue: &mut ReadQueue<usize>) -> Option<(LiveRead, Vec<usize>)> {
        queue.begin(|_| true).map(|(read, _, waiters)| (read, waiters.to_vec()))
    }

    #[test]
    fn a_read_is_shared_until_it_begins_and_not_after() {
        let mut queue = queue((8, 8), (8, 8));
        assert_eq!(queue.ask(&group_of("a"), read("a"), 1), None);
        assert_eq!(queue.ask(&group_of("b"), read("a"), 2), None);
        assert_eq!(begin(&mut queue), Some((read("a"), vec![1, 2])));
        // Later waiters share the next read, which starts after the first has ended.
        queue.ask(&group_of("b"), read("a"), 3);
        queue.ask(&group_of("a"), read("a"), 4);
        assert_eq!(begin(&mut queue), None);
        assert_eq!(queue.end(&read("a")), [1, 2]);
        assert_eq!(begin(&mut queue), Some((read("a"), vec![3, 4])));
        assert_eq!(queue.end(&read("a")), [3, 4]);
        assert_eq!(begin(&mut queue), None);
        assert!(queue.entries.is_empty() && queue.waiting.is_empty() && queue.total_waiting == 0);
    }

    #[test]
    fn a_busy_namespace_delays_another_namespace_by_one_read() {
        let mut queue = queue((4, 3), (100, 100));
        for n in 0..90 {
            queue.ask(&group_of("busy"), read(&format!("busy-{n}")), n);
        }
        queue.ask(&group_of("quiet"), read("quiet"), 100);
        let mut begun = Vec::new();
        while let Some((read, _)) = begin(&mut queue) {
            begun.push(read);
        }
        assert_eq!(begun, [read("busy-0"), read("quiet"), read("busy-1"), read("busy-2")]);
        // One running read is reserved for other groups, so their reads start at once.
        queue.end(&read("quiet"));
        assert_eq!(begin(&mut queue), None);
        queue.ask(&group_of("other"), read("other"), 101);
        assert_eq!(begin(&mut queue), Some((read("other"), vec![101])));
        assert_eq!(queue.end(&read("busy-0")), [0]);
        assert_eq!(begin(&mut queue), Some((read("busy-3"), vec![3])));
    }

    #[test]
    fn a_shared_read_begins_in_the_turn_of_any_of_its_groups() {
        let mut queue = queue((2, 1), (100, 100));
        for n in 0..9 {
            queue.ask(&group_of("busy"), read(&format!("busy-{n}")), n);
        }
        queue.ask(&group_of("quiet"), read("busy-8"), 100);
        assert_eq!(begin(&mut queue), Some((read("busy-0"), vec![0])));
        assert_eq!(begin(&mut queue), Some((read("busy-8"), vec![8, 100])));
        assert_eq!(queue.waiting[&group_of("busy")], 7);
    }

    #[test]
    fn h36_made_up_namespaces_and_subjects_share_one_small_group() {
        let mut graph = Graph::default();
        let policies = PolicySet::default();
        let group_of_review = |graph: &Graph, request: Value| {
            let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": request});
            let bytes = review.to_string();
            let parsed = parse_review(bytes.as_bytes(), AdmissionPhase::Validate).unwrap();
            let Parsed::Review(review) = parsed else { panic!("it can be read") };
            ReadGroup::of(&Situation::new(graph, &policies, ObjectSource::Files, 0), &review)
        };
        let group = |graph: &Graph, namespace: &str, user: &str, uid: &str| {
            let request = json!({"uid": "1", "operation": "DELETE",
                "resource": {"resource": "configmaps"}, "name": "a", "namespace": namespace,
                "userInfo": {"username": user}, "oldObject": {"metadata": {"uid": uid}}});
            group_of_review(graph, request)
        };
        let unproven = |namespace: &str| ReadGroup::UnprovenObjects(namespace.to_owned());
        // Before the Namespaces are known, each has a group.
        assert_eq!(group(&graph, "shop", "jane", "u"), unproven("shop"));
        let catalogue = Catalogue::new(&graph.kinds, &[]).unwrap();
        let [namespaces, maps] =
            ["Namespace", "ConfigMap"].map(|kind| graph.kinds.find("", kind).unwrap());
        catalogue
            .parse_and_apply(&mut graph, namespaces, r#"{"metadata":{"name":"shop","uid":"s"}}"#)
            .unwrap();
        let map = r#"{"metadata":{"name":"a","namespace":"shop","uid":"u"}}"#;
        catalogue.parse_and_apply(&mut graph, maps, map).unwrap();
        graph.set_complete(namespaces, true);
        assert_eq!(group(&graph, "shop", "jane", "u"), group_of("shop"));
        assert_eq!(group(&graph, "shop", "jane", "other"), unproven("shop"));
        // H191: a Namespace is never part of another one.
        let review = json!({"uid": "1", "operation": "DELETE", "resource":
            {"resource": "namespaces"}, "name": "shop", "namespace": "victim",
            "userInfo": {"username": "jane"}, "oldObject": {"metadata": {"uid": "s"}}});
        assert_eq!(group_of_review(&graph, review), group_of("shop"));
        // H209: a caller may know the uid of a cluster-scoped object, such as that of its own Node.
        let node = graph.kinds.find("", "Node").unwrap();
        let stored = r#"{"metadata":{"name":"n","uid":"n"}}"#;
        catalogue.parse_and_apply(&mut graph, node, stored).unwrap();
        for user in ["admin", "made-up"] {
            let review = json!({"uid": "1", "operation": "DELETE", "name": "n",
                "resource": {"resource": "nodes"}, "userInfo": {"username": user},
                "oldObject": {"metadata": {"uid": "n"}}});
            let nodes = ReadGroup::Resource(String::new(), "nodes".to_owned());
            assert_eq!(group_of_review(&graph, review), nodes);
        }
        for n in 0..3 {
            assert_eq!(group(&graph, &format!("made-up-{n}"), "jane", "u"), unproven(""));
            assert_eq!(group(&graph, "", &format!("made-up-{n}"), "u"), unproven(""));
        }

        let mut queue = queue((1, 1), (32, 16));
        for n in 0..2 {
            assert_eq!(queue.ask(&unproven(""), read(&n.to_string()), n), None);
        }
        assert_eq!(queue.ask(&unproven(""), read("more"), 2), Some(2), "its share is full");
        assert_eq!(queue.ask(&group_of("shop"), read("real"), 3), None);
        assert_eq!(begin(&mut queue), Some((read("0"), vec![0])));
        queue.end(&read("0"));
        assert_eq!(begin(&mut queue), Some((read("real"), vec![3])));
    }

    #[test]
    fn a_namespace_can_fill_neither_the_queue_nor_the_part_of_others() {
        let mut queue = queue((1, 1), (4, 3));
        for n in 0..3 {
            assert_eq!(queue.ask(&group_of("busy"), read(&n.to_string()), n), None);
        }
        assert_eq!(queue.ask(&group_of("busy"), read("more"), 9), Some(9), "its part is full");
        assert_eq!(queue.ask(&group_of("b"), read("b"), 10), None);
        // The queue is full, so it rejects a waiter of the largest group.
        for (number, other) in [(11, "c"), (12, "d")] {
            let rejected = queue.ask(&group_of(other), read(other), number);
            assert!(rejected.is_some_and(|waiter| waiter < 3), "{rejected:?}");
        }
        assert_eq!(
            queue.ask(&group_of("e"), read("e"), 13),
            Some(13),
            "no group has more than one"
        );
        assert_eq!(queue.total_waiting, 4);
        let mut served = Vec::new();
        while let Some((read, waiters)) = begin(&mut queue) {
            served.extend(waiters);
            queue.end(&read);
        }
        served.sort_unstable();
        assert_eq!(served.len(), 4);
        assert!(served.ends_with(&[10, 11, 12]), "{served:?}");
        assert!(queue.entries.is_empty() && queue.waiting.is_empty() && queue.total_waiting == 0);
    }

    #[test]
    fn a_read_whose_waiters_have_given_up_does_not_begin() {
        let mut queue = queue((8, 8), (2, 2));
        queue.ask(&group_of("a"), read("a"), 1);
        queue.ask(&group_of("a"), read("b"), 2);
        let begun = queue.begin(|waiter| *waiter != 1);
        assert_eq!(
            begun.map(|(read, _, waiters)| (read, waiters.to_vec())),
            Some((read("b"), vec![2]))
        );
        // A waiter that gave up does not count as waiting.
        assert_eq!(queue.ask(&group_of("a"), read("a"), 3), None);
        assert_eq!(queue.ask(&group_of("a"), read("a"), 4), None);
        assert_eq!(begin(&mut queue), Some((read("a"), vec![3, 4])));
    }
}
