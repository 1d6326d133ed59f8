//! The first output of the standalone server: commands to paste that show how belay
//! works.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use crate::decide::{AdmissionPhase, Decision, Review, Verdict};
use crate::objects::shell_word;
use crate::webhook::{Parsed, parse_review};

/// A review that the standalone server proposes to send to itself.
struct Sample {
    /// The expected result.
    shows: &'static str,
    phase: AdmissionPhase,
    file: &'static str,
    text: &'static str,
}

const SAMPLES: [Sample; 4] = [
    Sample {
        shows: "a DELETE that is denied, by a label",
        phase: AdmissionPhase::Validate,
        file: "examples/delete-denied.json",
        text: include_str!("../../examples/delete-denied.json"),
    },
    Sample {
        shows: "a DELETE that is denied, because the object is in use",
        phase: AdmissionPhase::Validate,
        file: "examples/delete-in-use.json",
        text: include_str!("../../examples/delete-in-use.json"),
    },
    Sample {
        shows: "a CREATE that gets the hold by a label, as a JSON patch",
        phase: AdmissionPhase::Mutate,
        file: "examples/create-held.json",
        text: include_str!("../../examples/create-held.json"),
    },
    Sample {
        shows: "a CREATE that gets the hold by a policy, as a JSON patch",
        phase: AdmissionPhase::Mutate,
        file: "examples/create-held-by-policy.json",
        text: include_str!("../../examples/create-held-by-policy.json"),
    },
];

/// Commands to paste. With the user's own policies and objects a sample may have no effect;
/// those samples are left out.
pub fn welcome(
    listen: SocketAddr,
    probes: SocketAddr,
    ca: Option<&Path>,
    asks_clients: bool,
    decider: &dyn Fn(&Review<'_>) -> Verdict,
) -> String {
    // The certificate is for names of this machine, not for "every address".
    let mut url = listen;
    if url.ip().is_unspecified() {
        url.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let ca = ca
        .map_or(String::new(), |ca| format!("--cacert {} ", shell_word(&ca.display().to_string())));
    let identity = if asks_clients { "--cert CLIENT.crt --key CLIENT.key " } else { "" };
    let mut text =
        format!("belay answers on https://{url}, probes and metrics on http://{probes}\n\n");
    for sample in SAMPLES.iter().filter(|sample| sample.shows_something(decider)) {
        let Sample { shows, phase, file, text: review } = sample;
        // belay may run in any folder: without the file, the command contains the review
        // itself.
        let data = if std::fs::read_to_string(file).is_ok_and(|found| found == *review) {
            format!("@{file}")
        } else {
            let compact: String = review.lines().map(str::trim).collect();
            shell_word(&compact)
        };
        let path = phase.as_str();
        text.push_str(&format!(
            "{shows}:\n  curl {ca}{identity}-H 'Content-Type: application/json' --data {data} \
             https://{url}/{path}\n\n"
        ));
    }
    text.push_str("Ctrl-C ends it.\n");
    text
}

impl Sample {
    /// Whether the verdict is the expected one.
    fn shows_something(&self, decider: &dyn Fn(&Review<'_>) -> Verdict) -> bool {
        let Ok(Parsed::Review(review)) = parse_review(self.text.as_bytes(), self.phase) else {
            return false;
        };
        let verdict = decider(&review);
        match self.phase {
            AdmissionPhase::Validate => verdict.decision == Decision::Deny,
            AdmissionPhase::Mutate => verdict.hold.is_some(),
        }
    }
}
