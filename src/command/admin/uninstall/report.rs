//! The report of an uninstall, as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::uninstall::{HeldObject, HeldReason, UninstallCounts, UninstallReport};
use crate::command::diagnosis::cause_text;
use crate::command::document::{FailedRead, Object};
use crate::command::report::{Report, View};
use crate::objects::Kinds;

/// The messages of an uninstall that its report contains, each in order.
#[derive(Debug, Default)]
pub struct Messages {
    pub steps: Vec<String>,
    pub warnings: Vec<String>,
}

/// The result of an uninstall.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UninstallOutput {
    /// Whether this is a dry run.
    dry_run: bool,
    /// The number of holds removed from objects that are not Terminating. In a dry run these
    /// objects are in `left` with the cause `Untouched`.
    released: usize,
    /// The number of Terminating objects that were released, or would be, because they are not
    /// in use.
    released_terminating: usize,
    /// The number of objects that were released while in use.
    abandoned: usize,
    /// All objects that still have the hold.
    left: Vec<RemainingHold>,
    /// Kinds that may have holds and could not be listed.
    not_read: Vec<FailedRead>,
    /// The other steps, in order: the Lease, belay's deleted objects, abandoned objects. In a
    /// dry run: the planned deletions, and the policies that end.
    steps: Vec<String>,
    /// Failures and findings that need attention, in order, such as objects of belay that were
    /// not deleted.
    warnings: Vec<String>,
    /// The output for people, with the next step.
    lines: Vec<String>,
    #[serde(skip)]
    exit_code: u8,
}

impl Report for UninstallOutput {
    const KIND: &'static str = "Uninstalled";

    fn text(&self, view: View) -> String {
        view.screen.wrap(&self.lines.join("\n"))
    }

    fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

/// An object that has its hold still.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RemainingHold {
    /// The object.
    object: Object,
    /// The cause.
    cause: Cause,
    /// The message.
    #[serde(rename = "says")]
    message: String,
    /// The objects that use the object. Empty if there is another cause.
    waits_for: Vec<String>,
}

/// Why an object has its hold still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
enum Cause {
    /// The object is Terminating and in use.
    InUse,
    /// The object is Terminating, and it is unknown whether it is in use.
    Unknown,
    /// The object is about to be deleted with its owner or Namespace. Without the hold, it would be
    /// deleted even if it is in use.
    Going,
    /// The API server does not serve the kind.
    Unserved,
    /// The Namespace was deleted by force, so the object can't be written.
    Stranded,
    /// The API server refuses the patch.
    Refused,
    /// The time ran out before belay reached the object.
    Late,
    /// The object is not Terminating, and this was a dry run.
    Untouched,
}

impl From<&HeldReason> for Cause {
    fn from(reason: &HeldReason) -> Self {
        match reason {
            HeldReason::InUse(_) => Self::InUse,
            HeldReason::Unknown(_) => Self::Unknown,
            HeldReason::OwnerTerminating(_) => Self::Going,
            HeldReason::Unserved => Self::Unserved,
            HeldReason::Stranded => Self::Stranded,
            HeldReason::Refused(_) => Self::Refused,
            HeldReason::Late => Self::Late,
            HeldReason::DryRun => Self::Untouched,
        }
    }
}

impl UninstallOutput {
    pub fn new(
        report: &UninstallReport,
        dry_run: bool,
        Messages { steps, warnings }: Messages,
        text: &str,
        exit_code: u8,
    ) -> Self {
        let UninstallReport { tally, left, unread } = report;
        let UninstallCounts { released, released_terminating, abandoned } = tally;
        // The report names custom resources only by their plural.
        let kinds = Kinds::default();
        let not_read = unread
            .iter()
            .map(|(resource, why)| FailedRead { resource: resource.clone(), why: why.clone() });
        Self {
            dry_run,
            released: *released,
            released_terminating: *released_terminating,
            abandoned: *abandoned,
            left: left.iter().map(|left| RemainingHold::new(left, &kinds)).collect(),
            not_read: not_read.collect(),
            steps,
            warnings,
            lines: text.lines().map(str::to_owned).collect(),
            exit_code,
        }
    }
}

impl RemainingHold {
    fn new(HeldObject { target, reason }: &HeldObject, kinds: &Kinds) -> Self {
        let waits_for = match reason {
            HeldReason::InUse(causes) => causes.iter().map(cause_text).collect(),
            _ => Vec::new(),
        };
        Self {
            object: Object::of(target, kinds),
            cause: reason.into(),
            message: reason_text(reason),
            waits_for,
        }
    }
}

/// The reason why a hold remains.
pub fn reason_text(reason: &HeldReason) -> String {
    match reason {
        HeldReason::InUse(causes) => {
            let causes: Vec<String> = causes.iter().map(cause_text).collect();
            format!("it waits for {}", causes.join(", "))
        }
        HeldReason::Unknown(why) => format!("it is unknown whether an object uses it: {why}"),
        HeldReason::OwnerTerminating(why) => {
            format!("it is not Terminating, and its hold cannot be removed safely: {why}")
        }
        HeldReason::Unserved => "the API server does not serve its kind".to_owned(),
        HeldReason::Stranded => {
            "its Namespace was removed by force, and nothing in it can be written; next: \
             re-create the Namespace, and run this again"
                .to_owned()
        }
        HeldReason::Refused(why) => why.clone(),
        HeldReason::Late => {
            "the time ended before its turn; next: run this again, it continues where it ended"
                .to_owned()
        }
        HeldReason::DryRun => "it is not Terminating".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::report::Format;
    use crate::command::screen::Screen;
    use crate::decide;
    use crate::objects::ObjectRef;

    #[test]
    fn the_json_contains_the_remaining_objects_and_the_reasons() {
        let target = ObjectRef::new(("", "configmaps"), "shop", "a");
        let user = decide::Cause::Finalizer("Pod shop/web".to_owned());
        let left = |reason| HeldObject { target: target.clone(), reason };
        let report = UninstallReport {
            tally: UninstallCounts { released: 3, released_terminating: 2, abandoned: 1 },
            left: vec![left(HeldReason::InUse(vec![user])), left(HeldReason::Late)],
            unread: vec![("secrets".to_owned(), "secrets is forbidden: no".to_owned())],
        };
        let (steps, warnings) = (vec!["deleted: x".to_owned()], vec!["y remains".to_owned()]);
        let messages = Messages { steps, warnings };
        let output = UninstallOutput::new(&report, false, messages, "a\n- b", 1);
        let view = View { screen: Screen::pipe(), all: false, wide: false, verbose: false };
        let json = output.render(Format::Json, view).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["kind"], &json["released"]), (&"Uninstalled".into(), &3.into()));
        let first = &json["left"][0];
        assert_eq!(first["object"]["typed"], "configmaps/a -n shop");
        assert_eq!((&first["cause"], &first["waitsFor"][0]), (&"InUse".into(), &cause_in(&report)));
        assert_eq!(json["left"][1]["cause"], "Late");
        assert_eq!(json["notRead"][0]["why"], "secrets is forbidden: no");
        assert_eq!((&json["steps"][0], &json["lines"][1]), (&"deleted: x".into(), &"- b".into()));
        assert_eq!(json["warnings"][0], "y remains");
    }

    fn cause_in(report: &UninstallReport) -> serde_json::Value {
        let HeldReason::InUse(causes) = &report.left[0].reason else { panic!() };
        cause_text(&causes[0]).into()
    }
}
