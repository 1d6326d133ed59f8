//! Who waits for which read: what is shared, and what is too much.

use std::collections::{HashMap, VecDeque};

use crate::decide::LiveRead;

/// How many reads are under way at once, and how many waiters wait for reads
/// that have not begun.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Each read asks one thing at a time, so that this is how many requests
    /// the API server gets at once.
    pub running: usize,
    /// Beyond these a waiter is turned away.
    pub waiting: usize,
}

/// Reads and those who wait for them.
///
/// An answer has to reflect everything that was stored before the question. So
/// a read that is under way is joined by nobody: who comes then waits for the
/// next one, and that one is shared by all who come until it begins.
#[derive(Debug)]
pub struct Desk<W> {
    bounds: Bounds,
    entries: HashMap<LiveRead, Entry<W>>,
    /// What can begin, in order: reads that somebody waits for and of which
    /// none is under way.
    queue: VecDeque<LiveRead>,
    running: usize,
    waiting: usize,
}

#[derive(Debug)]
struct Entry<W> {
    /// Those whose read is under way.
    running: Option<Vec<W>>,
    /// Those who wait for the next one.
    pending: Vec<W>,
}

impl<W> Desk<W> {
    /// A desk where nobody waits.
    pub fn new(bounds: Bounds) -> Self {
        let (entries, queue) = (HashMap::new(), VecDeque::new());
        Self { bounds, entries, queue, running: 0, waiting: 0 }
    }

    /// Somebody asks. The waiter comes back when too many wait already.
    pub fn ask(&mut self, read: LiveRead, waiter: W) -> Result<(), W> {
        if self.waiting >= self.bounds.waiting {
            return Err(waiter);
        }
        self.waiting += 1;
        let entry = self
            .entries
            .entry(read.clone())
            .or_insert_with(|| Entry { running: None, pending: Vec::new() });
        if entry.running.is_none() && entry.pending.is_empty() {
            self.queue.push_back(read);
        }
        entry.pending.push(waiter);
        Ok(())
    }

    /// The next read to begin, with those who wait for it. What nobody waits
    /// for any more does not begin.
    pub fn begin(&mut self, waits: impl Fn(&W) -> bool) -> Option<(LiveRead, &[W])> {
        if self.running >= self.bounds.running {
            return None;
        }
        let read = loop {
            let read = self.queue.pop_front()?;
            let Some(entry) = self.entries.get_mut(&read) else { continue };
            self.waiting -= entry.pending.len();
            entry.pending.retain(&waits);
            if !entry.pending.is_empty() {
                break read;
            }
            self.entries.remove(&read);
        };
        self.running += 1;
        let entry = self.entries.get_mut(&read)?;
        let waiters = entry.running.insert(std::mem::take(&mut entry.pending));
        Some((read, waiters))
    }

    /// A read has ended: those who waited for it.
    pub fn end(&mut self, read: &LiveRead) -> Vec<W> {
        let Some(entry) = self.entries.get_mut(read) else { return Vec::new() };
        let Some(waiters) = entry.running.take() else { return Vec::new() };
        self.running -= 1;
        if entry.pending.is_empty() {
            self.entries.remove(read);
        } else {
            self.queue.push_back(read.clone());
        }
        waiters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> LiveRead {
        LiveRead::Object {
            group: String::new(),
            resource: "pods".to_owned(),
            namespace: "a".to_owned(),
            name: name.to_owned(),
        }
    }

    fn desk(running: usize, waiting: usize) -> Desk<u8> {
        Desk::new(Bounds { running, waiting })
    }

    #[test]
    fn what_has_not_begun_is_shared_and_what_has_is_not() {
        let mut desk = desk(8, 8);
        desk.ask(read("a"), 1).unwrap();
        desk.ask(read("a"), 2).unwrap();
        assert_eq!(desk.begin(|_| true), Some((read("a"), &[1, 2][..])));
        // Later ones share one more, which waits until the first has ended.
        desk.ask(read("a"), 3).unwrap();
        desk.ask(read("a"), 4).unwrap();
        assert_eq!(desk.begin(|_| true), None);
        assert_eq!(desk.end(&read("a")), [1, 2]);
        assert_eq!(desk.begin(|_| true), Some((read("a"), &[3, 4][..])));
        assert_eq!(desk.end(&read("a")), [3, 4]);
        assert_eq!(desk.begin(|_| true), None);
        assert!(desk.entries.is_empty());
    }

    #[test]
    fn so_many_run_and_so_many_wait() {
        let mut desk = desk(1, 2);
        desk.ask(read("a"), 1).unwrap();
        assert!(desk.begin(|_| true).is_some());
        desk.ask(read("b"), 2).unwrap();
        desk.ask(read("c"), 3).unwrap();
        assert_eq!(desk.begin(|_| true), None, "one runs");
        assert_eq!(desk.ask(read("d"), 4), Err(4), "two wait");
        assert_eq!(desk.end(&read("a")), [1]);
        assert_eq!(desk.begin(|_| true), Some((read("b"), &[2][..])), "in order");
        desk.ask(read("d"), 4).unwrap();
    }

    #[test]
    fn what_nobody_waits_for_any_more_does_not_begin() {
        let mut desk = desk(8, 2);
        desk.ask(read("a"), 1).unwrap();
        desk.ask(read("b"), 2).unwrap();
        assert_eq!(desk.begin(|waiter| *waiter != 1), Some((read("b"), &[2][..])));
        // Who has gone does not count as one who waits, either.
        desk.ask(read("a"), 3).unwrap();
        desk.ask(read("a"), 4).unwrap();
        assert_eq!(desk.begin(|_| true), Some((read("a"), &[3, 4][..])));
    }
}
