//! `belay admin uninstall`: removes belay from a cluster.

mod report;

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

pub use self::report::UninstallOutput;
use self::report::{Messages, reason_text};
use crate::cluster::Settings;
use crate::cluster::uninstall::{
    HeldObject, HeldReason, Uninstall, UninstallError, UninstallEvent, UninstallOptions,
    UninstallReport, count_by_kind, holds,
};
use crate::command::confirm::{self, ConfirmArguments};
use crate::command::duration::parse_timeout;
use crate::command::place::ClusterArguments;
use crate::command::report::{Format, FormatArguments, Report};
use crate::command::screen::{Screen, progress};
use crate::command::session::UserSession;
use crate::command::signals::catch_signal;
use crate::command::timing::TimingArguments;
use crate::command::webhooks::INSTALL_AGAIN;
use crate::command::{CommandError, block_on};

/// The maximum number of objects in the final message. The document contains all of them.
const MAX_NAMED: usize = 20;

#[derive(Debug, Args)]
pub struct UninstallArguments {
    #[command(flatten)]
    cluster: ClusterArguments,

    /// The maximum time to wait until all holds are removed, after the webhook configurations
    /// were deleted [default: unlimited]
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout)]
    timeout: Option<Duration>,

    /// Also remove the hold from Terminating objects that are in use; Kubernetes then deletes them
    /// for good. For one object, run kubectl belay approve instead: belay then removes its hold. If
    /// that fails because of a fault in belay, run kubectl belay release TYPE/NAME --force=NAME
    #[arg(long)]
    abandon: bool,

    /// Print the plan without executing it
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    confirm: ConfirmArguments,

    #[command(flatten)]
    timing: TimingArguments,

    #[command(flatten)]
    output: FormatArguments,
}

pub fn run(arguments: UninstallArguments) -> Result<ExitCode, CommandError> {
    let must_ask = !arguments.dry_run && !arguments.confirm.is_confirmed();
    block_on(uninstall(arguments, must_ask))?
}

async fn uninstall(
    arguments: UninstallArguments,
    must_ask: bool,
) -> Result<ExitCode, CommandError> {
    let UninstallArguments { cluster, timeout: limit, abandon, dry_run, timing, output, .. } =
        arguments;
    let output = output.output;
    let session = UserSession::open(cluster).await?;
    let settings = Settings { timing: timing.read(), ..session.settings() };
    if dry_run || must_ask {
        let options = UninstallOptions { abandon, dry_run: true, limit };
        let (report, messages) = execute(&session, &settings, options).await?;
        let text = plan_text(&report, &messages, abandon);
        if dry_run {
            let code = if report.unread.is_empty() { 0 } else { 3 };
            return UninstallOutput::new(&report, true, messages, &text, code).print(output);
        }
        let text = Screen::stdout().wrap(&text);
        confirm::ask(&format!("{text}This removes belay's protection from the whole cluster."))?;
    }
    let options = UninstallOptions { abandon, dry_run: false, limit };
    let (report, messages) = execute(&session, &settings, options).await?;
    let (code, text) = match report.is_clean() {
        true => (0, format!("{}; no object has belay's hold\n", report.tally)),
        false => (1, remaining_text(&report, &session.me.name)),
    };
    // Remaining objects are an error, so that the user notices them.
    if output == Format::Table && code == 1 {
        return Err(CommandError::Refused(text));
    }
    UninstallOutput::new(&report, false, messages, &text, code).print(output)
}

/// Executes the uninstall, or plans it.
async fn execute(
    session: &UserSession,
    settings: &Settings,
    options: UninstallOptions,
) -> Result<(UninstallReport, Messages), CommandError> {
    let messages = RefCell::new(Messages::default());
    let show = |text: &str| {
        if !options.dry_run {
            progress(text);
        }
    };
    let uninstall = Uninstall {
        client: session.caller.client.clone(),
        settings: settings.clone(),
        identities: session.identities(),
        clock: session.clock(),
        options,
        report: &|event| record(event, &mut messages.borrow_mut(), &show),
    };
    let report = uninstall.run(catch_signal).await.map_err(|error| {
        let why = error_text(settings, &error);
        match error {
            // A retry does not help, so the Job of the chart does not retry.
            UninstallError::OtherInstallation { .. } => CommandError::Refused(why),
            _ => CommandError::Remote(why),
        }
    })?;
    Ok((report, messages.take()))
}

/// The text of an error, with the next step.
fn error_text(Settings { namespace, name, .. }: &Settings, error: &UninstallError) -> String {
    match error {
        UninstallError::Kinds(why) => {
            format!("cannot read the served kinds: {why}; nothing was changed; next: try again")
        }
        UninstallError::ReadConfiguration(what, error) => format!(
            "cannot read the {what}: {}; nothing was changed; next: this needs the RBAC verbs get \
             and delete on mutatingwebhookconfigurations and validatingwebhookconfigurations of \
             admissionregistration.k8s.io",
            error
        ),
        UninstallError::OtherInstallation { namespace: other, name: own } => {
            let other = other.as_deref().unwrap_or("NAMESPACE");
            format!(
                "the webhook configurations {own} belong to another installation than \
                 {namespace}/{name}, and without its holds it protects nothing; nothing was \
                 changed; next: --installation={other}/{own}"
            )
        }
        UninstallError::Lease(error) => format!(
            "cannot take the Lease {name} in namespace {namespace}: {}; nothing was changed; next: \
             this needs the RBAC verbs get, create, update and delete on \
             leases.coordination.k8s.io there",
            error
        ),
        UninstallError::DeleteConfiguration(what, error) => format!(
            "cannot delete the {what}: {}; no hold was removed; next: this needs the RBAC verb \
             delete on mutatingwebhookconfigurations and validatingwebhookconfigurations of \
             admissionregistration.k8s.io",
            error
        ),
        UninstallError::Interrupted { signal, are_deleted: Some(true) } => format!(
            "interrupted by {signal}: the webhook configurations are deleted, so belay denies \
             nothing; objects keep the holds that were not removed\nto continue: run this again\nto \
             keep belay: {INSTALL_AGAIN}"
        ),
        UninstallError::Interrupted { signal, are_deleted: Some(false) } => format!(
            "interrupted by {signal}: a webhook configuration still exists; next: kubectl belay \
             status"
        ),
        UninstallError::Interrupted { signal, are_deleted: None } => format!(
            "interrupted by {signal}: it is unknown whether the webhook configurations are deleted; \
             next: kubectl belay status"
        ),
        UninstallError::Record(error) => format!(
            "cannot read which kinds have holds, in the ConfigMap {name}-held in \
             namespace {namespace}: {}; no hold was removed; next: this needs the RBAC verb get on \
             configmaps there",
            error
        ),
    }
}

/// Shows an event to the user. The document contains the steps and the warnings.
fn record(event: UninstallEvent, messages: &mut Messages, show: &dyn Fn(&str)) {
    match event {
        UninstallEvent::Progress(text) => show(&text),
        UninstallEvent::Step(text) => {
            show(&text);
            messages.steps.push(text);
        }
        UninstallEvent::Warning(text) => {
            show(&format!("warning: {text}"));
            messages.warnings.push(text);
        }
        UninstallEvent::Fails(kind, count, reason) => {
            show(&format!("warning: {count} {kind} keep their holds: {}", reason_text(&reason)));
        }
        UninstallEvent::Waits(HeldObject { target, reason }) => {
            let (what, why) = (target.arguments(), reason_text(&reason));
            let held = match reason {
                HeldReason::OwnerTerminating(_) => "held",
                _ => "Terminating and held",
            };
            show(&format!("{held}: {what}: {why}"));
        }
        UninstallEvent::Abandoned(HeldObject { target, reason }) => {
            let text = format!("ABANDONED: {}: {}", target.arguments(), reason_text(&reason));
            show(&text);
            messages.steps.push(text);
        }
    }
}

/// The planned changes. `abandon`: whether objects in use are released as well.
fn plan_text(
    UninstallReport { tally, left, unread }: &UninstallReport,
    messages: &Messages,
    abandon: bool,
) -> String {
    let warnings = messages.warnings.iter().map(|warning| format!("warning: {warning}"));
    let lines = messages.steps.iter().cloned().chain(warnings);
    let mut text: String = lines.map(|line| line + "\n").collect();
    let (stays, waits): (Vec<&HeldObject>, Vec<_>) =
        left.iter().partition(|held| held.reason == HeldReason::DryRun);
    for (kind, count, _) in count_by_kind(stays) {
        text.push_str(&format!("would remove {} from {kind}\n", holds(count)));
    }
    if tally.released_terminating > 0 {
        let count = tally.released_terminating;
        text.push_str(&format!("would release {count} Terminating objects\n"));
    }
    for HeldObject { target, reason } in &waits {
        let (what, why) = (target.arguments(), reason_text(reason));
        text.push_str(&match abandon {
            true => format!("would abandon {what}: {why}\n"),
            false => format!("would wait for {what}: {why}\n"),
        });
    }
    if abandon && !waits.is_empty() {
        text.push_str("Kubernetes can then delete these objects, even if they are in use\n");
    }
    for (kind, why) in unread {
        text.push_str(&format!("could not read {kind}: {why}\n"));
    }
    if left.is_empty() && unread.is_empty() && tally.released_terminating == 0 {
        text.push_str("no object has a hold\n");
    }
    text
}

/// The remaining objects, the reasons, and the next step.
fn remaining_text(UninstallReport { tally, left, unread }: &UninstallReport, me: &str) -> String {
    let mut text = format!("{tally}; left are:");
    let (waits, fails): (Vec<&HeldObject>, Vec<_>) =
        left.iter().partition(|held| held.reason.may_end());
    for HeldObject { target, reason } in waits.iter().take(MAX_NAMED) {
        text.push_str(&format!("\n- {}: {}", target.arguments(), reason_text(reason)));
    }
    if let Some(more) = waits.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        text.push_str(&format!("\n- and {more} more objects"));
    }
    let fails = count_by_kind(fails);
    for (kind, count, why) in &fails {
        text.push_str(&format!("\n- {count} {kind}: {}", reason_text(why)));
    }
    for (kind, why) in unread {
        text.push_str(&format!("\n- {kind}, which could not be read: {why}"));
    }
    text.push_str("\nbelay denies nothing now, because its webhook configurations are deleted");
    if !waits.is_empty() {
        text.push_str(
            "\nhint: run this again to continue, or add --abandon to remove these holds as well; \
             Kubernetes can then delete these objects, even if they are in use",
        );
    }
    let kinds: Vec<&str> = fails
        .iter()
        .filter(|(_, _, why)| matches!(why, HeldReason::Refused(_)))
        .map(|(kind, ..)| kind.as_str())
        .chain(unread.iter().map(|(kind, _)| kind.as_str()))
        .collect();
    if !kinds.is_empty() {
        text.push_str(&format!(
            "\nhint: have an administrator bind the RBAC verbs get, list and patch on {} to {me}, if \
             you lack it, and run this again",
            kinds.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::uninstall::UninstallCounts;
    use crate::decide::Cause;
    use crate::objects::ObjectRef;

    fn left(name: &str, reason: HeldReason) -> HeldObject {
        let target = ObjectRef::new(("", "configmaps"), "shop", name);
        HeldObject { target, reason }
    }

    fn in_use() -> HeldReason {
        HeldReason::InUse(vec![Cause::Finalizer("Pod shop/web".to_owned())])
    }

    #[test]
    fn reports_the_remaining_holds_with_reasons_and_hints() {
        let refused = || HeldReason::Refused("the API server answers 403: cannot patch".to_owned());
        let report = UninstallReport {
            tally: UninstallCounts { released: 1200, released_terminating: 2, abandoned: 0 },
            left: vec![left("a", in_use()), left("b", refused()), left("c", refused())],
            unread: vec![("secrets".to_owned(), "secrets is forbidden: no".to_owned())],
        };
        assert_eq!(
            remaining_text(&report, "bob"),
            "removed 1200 holds, released 2 Terminating objects; left are:\n\
             - configmaps/a -n shop: it waits for Pod shop/web\n\
             - 2 configmaps: the API server answers 403: cannot patch\n\
             - secrets, which could not be read: secrets is forbidden: no\n\
             belay denies nothing now, because its webhook configurations are deleted\n\
             hint: run this again to continue, or add --abandon to remove these holds as well; \
             Kubernetes can then delete these objects, even if they are in use\n\
             hint: have an administrator bind the RBAC verbs get, list and patch on configmaps, \
             secrets to bob, if you lack it, and run this again"
        );
        let many = (0..MAX_NAMED + 3).map(|n| left(&n.to_string(), in_use())).collect();
        let report = UninstallReport { left: many, ..UninstallReport::default() };
        let text = remaining_text(&report, "bob");
        assert!(text.contains("\n- and 3 more objects\n"), "{text}");
        assert!(!text.contains("RBAC"), "{text}");
    }

    #[test]
    fn warnings_are_not_steps_and_progress_is_only_shown() {
        let mut messages = Messages::default();
        let text = |text: &str| text.to_owned();
        let shown = RefCell::new(Vec::new());
        let show = |text: &str| shown.borrow_mut().push(text.to_owned());
        for event in [
            UninstallEvent::Step(text("deleted: x")),
            UninstallEvent::Progress(text("released 3 holds")),
            UninstallEvent::Waits(left("a", in_use())),
            UninstallEvent::Waits(left(
                "c",
                HeldReason::OwnerTerminating(text("its owner is Terminating")),
            )),
            UninstallEvent::Warning(text("Secret x was not deleted")),
            UninstallEvent::Fails(text("configmaps"), 2, HeldReason::Late),
            UninstallEvent::Abandoned(left("b", in_use())),
        ] {
            record(event, &mut messages, &show);
        }
        let waits = "Terminating and held: configmaps/a -n shop: it waits for Pod shop/web";
        assert_eq!(shown.borrow()[2], waits);
        let owner = "held: configmaps/c -n shop: it is not Terminating, and its hold cannot be \
                     removed safely: its owner is Terminating";
        assert_eq!(shown.borrow()[3], owner);
        let Messages { steps, warnings } = messages;
        let abandoned = "ABANDONED: configmaps/b -n shop: it waits for Pod shop/web";
        assert_eq!(steps, ["deleted: x", abandoned]);
        assert_eq!(warnings, ["Secret x was not deleted"]);
    }

    #[test]
    fn a_dry_run_reports_the_planned_changes() {
        let planned = |report: &UninstallReport| {
            let steps = vec!["would delete: ValidatingWebhookConfiguration belay".to_owned()];
            plan_text(report, &Messages { steps, ..Messages::default() }, false)
        };
        let deletes = "would delete: ValidatingWebhookConfiguration belay\n";
        assert_eq!(
            planned(&UninstallReport::default()),
            format!("{deletes}no object has a hold\n")
        );
        let report = UninstallReport {
            tally: UninstallCounts { released_terminating: 1, ..UninstallCounts::default() },
            left: vec![
                left("a", HeldReason::DryRun),
                left("b", HeldReason::DryRun),
                left("c", in_use()),
            ],
            unread: Vec::new(),
        };
        assert_eq!(
            planned(&report),
            format!(
                "{deletes}would remove 2 holds from configmaps\n\
                 would release 1 Terminating objects\n\
                 would wait for configmaps/c -n shop: it waits for Pod shop/web\n"
            )
        );
        let abandoned = plan_text(&report, &Messages::default(), true);
        let deletes = "would abandon configmaps/c -n shop: it waits for Pod shop/web\n\
                       Kubernetes can then delete these objects, even if they are in use\n";
        assert!(abandoned.ends_with(deletes), "{abandoned}");
    }

    #[test]
    fn an_error_reports_the_changes_so_far_and_the_next_step() {
        let settings =
            Settings { namespace: "ops".into(), name: "guard".into(), ..Settings::of_test(&[]) };
        let text = error_text(
            &settings,
            &UninstallError::OtherInstallation {
                namespace: Some("belay".to_owned()),
                name: "guard".to_owned(),
            },
        );
        assert!(text.ends_with("nothing was changed; next: --installation=belay/guard"), "{text}");
        let forbidden = crate::objects::ApiError::Forbidden("cannot delete".to_owned());
        let error = UninstallError::DeleteConfiguration("X guard".to_owned(), forbidden);
        let text = CommandError::Remote(error_text(&settings, &error)).to_string();
        assert!(text.starts_with("cannot delete the X guard: cannot delete"), "{text}");
        assert!(text.contains("the RBAC verb delete on mutatingwebhookconfigurations"), "{text}");
    }
}
