//! The first output of the standalone server: commands that show how belay works.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use crate::decide::{AdmissionPhase, Decision, Review, Verdict};
use crate::objects::shell_word;
use crate::webhook::{Parsed, parse_review};

/// A review that the standalone server proposes to send to itself.
struct Sample {
    /// The description of the expected verdict.
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

/// The output. It omits samples whose verdict is different because of the user's own policies and
/// objects.
pub fn welcome(
    listen: SocketAddr,
    probes: SocketAddr,
    ca: Option<&Path>,
    requires_client_certificate: bool,
    decider: &dyn Fn(&Review<'_>) -> Verdict,
) -> String {
    // The certificate contains the names of this machine, but not the unspecified address.
    let mut url = listen;
    if url.ip().is_unspecified() {
        url.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let ca = ca
        .map_or(String::new(), |ca| format!("--cacert {} ", shell_word(&ca.display().to_string())));
    let identity =
        if requires_client_certificate { "--cert CLIENT.crt --key CLIENT.key " } else { "" };
    let mut text =
        format!("belay answers on https://{url}, probes and metrics on http://{probes}\n\n");
    for sample in SAMPLES.iter().filter(|sample| sample.has_expected_verdict(decider)) {
        let Sample { shows, phase, file, text: review } = sample;
        // The command names the file if the working directory contains it. Otherwise the command
        // contains the review.
        let data = if std::fs::read_to_string(file).is_ok_and(|content| content == *review) {
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
    /// Whether belay returns the expected verdict.
    fn has_expected_verdict(&self, decider: &dyn Fn(&Review<'_>) -> Verdict) -> bool {
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
