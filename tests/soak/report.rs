//! The report of a finished soak.

use std::fmt;

use crate::memory::{Sample, grows, quarters};
use crate::people::Tally;
use crate::referee::{Referee, Sentence};

/// The number of printed findings of a kind.
const PRINTED: usize = 20;

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Report {
    /// The seed of the actions.
    pub seed: u64,
    /// The actions.
    pub tally: Tally,
    /// Policies, Relations, kinds and namespaces that were created or deleted.
    pub changes: usize,
    /// Leaders killed.
    pub killed: usize,
    /// Leaders paused.
    pub paused: usize,
    /// The reviewed DELETEs of the replicas at the end, and those that waited for live reads.
    pub deletes: (f64, f64),
    /// Memory over time.
    pub samples: Vec<Sample>,
    /// The referee's.
    pub sentence: Sentence,
    /// The number of objects that were compared between graph and API server.
    pub compared: usize,
    /// The differences.
    pub differences: Vec<String>,
    /// Watches that should not be there.
    pub watches: Vec<String>,
    /// The remaining holds after all policies were deleted.
    pub left: Vec<String>,
}

impl Report {
    /// Adds the result of the referee.
    pub fn judged(&mut self, sentence: Sentence) {
        self.sentence = sentence;
    }

    /// Adds the missing and extra objects of a replica's graph.
    pub fn graph(&mut self, replica: usize, (differences, compared): (Vec<String>, usize)) {
        self.compared += compared;
        let named = differences.into_iter().map(|text| format!("replica {replica}: {text}"));
        self.differences.extend(named);
    }

    /// Checks that a replica watches each kind at most once.
    pub fn open_watches(&mut self, referee: &Referee, replicas: usize) {
        for (path, count) in referee.watches.open() {
            // One Secret has the certificate, and one the path of the webhook.
            let each = if path == "/api/v1/namespaces/belay/secrets" { 2 } else { 1 };
            if count > each * replicas {
                self.watches.push(format!("{count} watches of {path} by {replicas} replicas"));
            }
        }
    }

    /// How many attacks were tried.
    pub fn attacks(&self) -> usize {
        self.tally.iter().filter(|((name, _), _)| name.starts_with("attack")).map(|(_, n)| n).sum()
    }

    /// Whether there is no error.
    pub fn is_clean(&self) -> bool {
        self.sentence.findings.is_empty()
            && self.differences.is_empty()
            && self.watches.is_empty()
            && self.left.is_empty()
            && !grows(&self.samples)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        let actions: usize = self.tally.values().sum();
        writeln!(f, "{actions} actions:")?;
        for ((name, outcome), count) in &self.tally {
            writeln!(f, "  {name:<24} {count:>6}  {outcome}")?;
        }
        writeln!(f, "{} policies, Relations, kinds and namespaces came or went", self.changes)?;
        writeln!(f, "{} attacks", self.attacks())?;
        writeln!(f, "leaders killed: {}, paused: {}", self.killed, self.paused)?;
        let Sentence { findings, looked, objects, held, released, refused } = &self.sentence;
        writeln!(
            f,
            "the log tells of {objects} objects; {held} had the hold, {released} of them went"
        )?;
        let refused: Vec<_> = refused.iter().map(|(why, n)| format!("{n} {why}")).collect();
        writeln!(f, "refused to people: {}", refused.join(", "))?;
        let (reviewed, live) = self.deletes;
        writeln!(
            f,
            "since the last start of each replica, {live} of {reviewed} reviewed DELETEs waited for \
             live reads"
        )?;
        if let Some((first, last)) = quarters(&self.samples) {
            writeln!(f, "memory of a replica: {first} KiB at first, {last} KiB at last")?;
            let step = self.samples.len() / 20 + 1;
            let some = self.samples.iter().step_by(step);
            let texts: Vec<_> = some
                .map(|(at, replicas)| {
                    let of =
                        |kib: &Option<u64>| kib.map_or("-".to_owned(), |k| (k / 1024).to_string());
                    format!("{at} s {}", replicas.iter().map(of).collect::<Vec<_>>().join("/"))
                })
                .collect();
            writeln!(f, "  in MiB: {}", texts.join(", "))?;
        }
        writeln!(f, "{} objects compared between graphs and API server", self.compared)?;
        writeln!(
            f,
            "the referee judged {} removals under policies in force, {} of them approved; it could \
             not tell {} times",
            looked.judged, looked.approved, looked.unsure
        )?;

        let findings: Vec<String> =
            findings.iter().map(|finding| format!("{}: {finding:?}", finding.name())).collect();
        let memory = if grows(&self.samples) { vec!["it grows".to_owned()] } else { Vec::new() };
        for (title, list) in [
            ("FINDINGS of the referee", &findings),
            ("DIFFERENCES between graph and API server", &self.differences),
            ("WATCHES", &self.watches),
            ("LEFT with no policy", &self.left),
            ("MEMORY", &memory),
        ] {
            if !list.is_empty() {
                writeln!(f, "{title}: {}", list.len())?;
            }
            for text in list.iter().take(PRINTED) {
                writeln!(f, "  {text}")?;
            }
        }
        writeln!(f, "{}", if self.is_clean() { "clean" } else { "NOT CLEAN" })
    }
}
