//! The open watches of a user, according to the log.

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;

use super::event::Event;

/// Watches under way, by their request.
#[derive(Debug, Default)]
pub struct Watches(HashMap<String, String>);

impl Watches {
    /// Reads only the watches of a log, which is quicker than reading all of it.
    pub fn read(log: impl BufRead) -> std::io::Result<Self> {
        let mut watches = Self::default();
        for line in log.lines() {
            let line = line?;
            if line.contains(r#""verb":"watch""#) {
                Event::parse(&line).iter().for_each(|event| watches.take(event));
            }
        }
        Ok(watches)
    }

    /// Processes one event.
    pub fn take(&mut self, event: &Event) {
        if event.verb != "watch" {
            return;
        }
        if event.complete {
            self.0.remove(&event.id);
        } else {
            self.0.insert(event.id.clone(), event.path.clone());
        }
    }

    /// How many are open, by their path.
    pub fn open(&self) -> BTreeMap<&str, usize> {
        let mut open = BTreeMap::new();
        for path in self.0.values() {
            *open.entry(path.as_str()).or_default() += 1;
        }
        open
    }
}
