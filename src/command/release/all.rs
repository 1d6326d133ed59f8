//! All that belay holds, and belay itself: `belay release --all`.

use std::cell::RefCell;
use std::process::ExitCode;

use super::left::{ReleasedAll, because, is_step};
use crate::cluster::Settings;
use crate::cluster::uninstall::{
    Ended, Left, Manners, News, NotBegun, Tally, Uninstall, Why, by_kind,
};
use crate::command::document::document;
use crate::command::place::PlaceArguments;
use crate::command::screen::Format;
use crate::command::timing::TimingArguments;
use crate::command::visitor::Visitor;
use crate::command::{CommandError, print};
use crate::telemetry::{LogFormat, init_logs};

/// So many objects are named in the end; all were named in the log.
const NAMED: usize = 20;

pub async fn release(
    place: PlaceArguments,
    manners: Manners,
    timing: TimingArguments,
    output: Format,
) -> Result<ExitCode, CommandError> {
    init_logs(LogFormat::Auto);
    let visitor = Visitor::open(place).await?;
    let settings = Settings { timing: timing.read(), ..visitor.settings() };
    let steps = RefCell::new(Vec::new());
    let uninstall = Uninstall {
        client: visitor.caller.client.clone(),
        settings: settings.clone(),
        identities: visitor.identities(),
        clock: visitor.clock(),
        manners,
        tell: &|news| {
            tell(&news);
            if is_step(&news) {
                steps.borrow_mut().push(line(&news));
            }
        },
    };
    let ended = uninstall.run().await.map_err(|not_begun| {
        let why = why(&settings, &not_begun);
        match not_begun {
            // To try again changes nothing of that, so the Job of the chart does
            // not.
            NotBegun::Elsewhere { .. } => CommandError::Refused(why),
            _ => CommandError::Remote(why),
        }
    })?;
    let (code, text) = match (manners.dry_run, ended.is_clean()) {
        (true, _) if ended.unread.is_empty() => (0, would(&ended)),
        (true, _) => (3, would(&ended)),
        (false, true) => {
            (0, format!("{}; nothing of belay's is left on any object\n", done(&ended.tally)))
        }
        (false, false) => (1, rest(&ended, &visitor.me.name)),
    };
    let said = ReleasedAll::new(&ended, manners.dry_run, steps.take(), &text);
    match document(output, &said)? {
        Some(document) => print(&document)?,
        // Nobody is to miss that something is left.
        None if code == 1 => return Err(CommandError::Refused(text)),
        None => print(&text)?,
    }
    Ok(ExitCode::from(code))
}

/// Why it was not begun, or broke off, and what next.
fn why(Settings { namespace, name, .. }: &Settings, not_begun: &NotBegun) -> String {
    match not_begun {
        NotBegun::Unread(why) => {
            format!("cannot ask which kinds there are: {why}; nothing was changed; next: try again")
        }
        NotBegun::Configurations(what, error) => format!(
            "cannot read the {what}: {}; nothing was changed; next: it takes the RBAC verbs get and \
             delete on mutatingwebhookconfigurations and validatingwebhookconfigurations of \
             admissionregistration.k8s.io",
            error
        ),
        NotBegun::Elsewhere { namespace: other, name: own } => {
            let other = other.as_deref().unwrap_or("NAMESPACE");
            format!(
                "the webhook configurations {own} ask a belay that is not {namespace}/{name}, and \
                 without its holds it protects nothing; nothing was changed; next: \
                 --installation={other}/{own}"
            )
        }
        NotBegun::Lease(error) => format!(
            "cannot take the Lease {name} in namespace {namespace}: {}; nothing was changed; next: \
             it takes the RBAC verbs get, create, update and delete on leases.coordination.k8s.io \
             there",
            error
        ),
        NotBegun::Configuration(what, error) => format!(
            "cannot delete the {what}: {}; no hold was taken off; next: it takes the RBAC verb \
             delete on mutatingwebhookconfigurations and validatingwebhookconfigurations of \
             admissionregistration.k8s.io",
            error
        ),
        NotBegun::Record(error) => format!(
            "cannot read which kinds belay has put holds on, in the ConfigMap {name}-held in \
             namespace {namespace}: {}; no hold was taken off; next: it takes the RBAC verb get on \
             configmaps there",
            error
        ),
    }
}

/// One line of the log for each news.
fn tell(news: &News) {
    let line = line(news);
    match news {
        News::SeizedAgain(_)
        | News::LeaseFails(_)
        | News::Unserved(_)
        | News::Unread(..)
        | News::Fails(..)
        | News::Abandoned(_)
        | News::Behind(..) => tracing::warn!("{line}"),
        _ => tracing::info!("{line}"),
    }
}

/// News in words.
fn line(news: &News) -> String {
    match news {
        News::Seized(None) => "the Lease is taken; nobody had it".to_owned(),
        News::Seized(Some(from)) => format!("the Lease is taken from {from}"),
        News::SeizedAgain(from) => format!("{from} had taken the Lease back; it is taken again"),
        News::LeaseFails(why) => format!(
            "the Lease cannot be written: {why}; it is tried again, and until it has run out no \
             replica takes it"
        ),
        News::Deleted(what) => format!("deleted: {what}"),
        News::Absent(what) => format!("already gone: {what}"),
        News::Outwaits(time) => format!(
            "waiting {} s, for so long whoever led may believe to lead still",
            time.as_secs()
        ),
        News::Progress(tally, kinds) => format!("{}; kinds left to look at: {kinds}", done(tally)),
        News::Unserved(kinds) => format!(
            "nobody serves {}, on whose objects belay had holds; if only their API server is down, \
             run this again when it is back",
            kinds.join(", ")
        ),
        News::Skipped(kinds) => format!(
            "not looked at, because they may not be listed: {}; no policy names them, nor does \
             belay's record of holds",
            kinds.join(", ")
        ),
        News::Unread(kind, why) => format!("{kind} may have holds and cannot be listed: {why}"),
        News::Fails(kind, count, why) => {
            format!("{count} {kind} keep their holds: {}", because(why))
        }
        News::Waits(left) => {
            format!("Terminating and held: {}: {}", left.target.arguments(), because(&left.why))
        }
        News::StillWaiting(count) => format!(
            "{count} objects are Terminating and held still; --abandon lets go of them though \
             something needs them"
        ),
        News::Abandoned(left) => {
            format!("ABANDONED: {}: {}", left.target.arguments(), because(&left.why))
        }
        News::Behind(what, why) => {
            format!("{what} is left behind, which does no harm: {why}; delete it by hand")
        }
        News::Bequeathed(heir) => format!(
            "replicas run still, so the Lease stays taken, and goes together with {heir}; next: \
             delete that"
        ),
    }
}

/// What was done.
fn done(Tally { released, let_go, abandoned }: &Tally) -> String {
    let mut text = format!("released {}", holds(*released));
    for (count, what) in [(*let_go, "let go of"), (*abandoned, "abandoned")] {
        if count > 0 {
            text.push_str(&format!(", {what} {count} that were Terminating"));
        }
    }
    text
}

fn holds(count: usize) -> String {
    if count == 1 { "1 hold".to_owned() } else { format!("{count} holds") }
}

/// What a dry run has found.
fn would(Ended { tally, left, unread }: &Ended) -> String {
    let mut text = String::new();
    let stays = left.iter().filter(|left| left.why == Why::Untouched);
    for (kind, count, _) in by_kind(stays.map(|left| (&left.target, &left.why))) {
        text.push_str(&format!("would take {} off {kind}\n", holds(count)));
    }
    if tally.let_go > 0 {
        text.push_str(&format!("would let go of {} that are Terminating\n", tally.let_go));
    }
    for left in left.iter().filter(|left| left.why != Why::Untouched) {
        let (what, why) = (left.target.arguments(), because(&left.why));
        text.push_str(&format!("would wait for {what}: {why}\n"));
    }
    for (kind, why) in unread {
        text.push_str(&format!("could not list {kind}: {why}\n"));
    }
    if text.is_empty() {
        text.push_str("nothing has a hold\n");
    }
    text
}

/// What is left, why, and what next.
fn rest(Ended { tally, left, unread }: &Ended, me: &str) -> String {
    let mut text = format!("{}; left are:", done(tally));
    let (waits, fails): (Vec<&Left>, Vec<&Left>) = left.iter().partition(|left| left.why.may_end());
    for left in waits.iter().take(NAMED) {
        text.push_str(&format!("\n- {}: {}", left.target.arguments(), because(&left.why)));
    }
    if let Some(more) = waits.len().checked_sub(NAMED).filter(|more| *more > 0) {
        text.push_str(&format!("\n- and {more} more"));
    }
    let fails = by_kind(fails.iter().map(|left| (&left.target, &left.why)));
    for (kind, count, why) in &fails {
        text.push_str(&format!("\n- {count} {kind}: {}", because(why)));
    }
    for (kind, why) in unread {
        text.push_str(&format!("\n- {kind}, which could not be listed: {why}"));
    }
    if !waits.is_empty() {
        text.push_str(
            "\nnext: run this again to wait on, or with --abandon to let go of what is in use",
        );
    }
    let kinds: Vec<&str> = fails
        .iter()
        .filter(|(_, _, why)| matches!(why, Why::Refused(_)))
        .map(|(kind, ..)| kind.as_str())
        .chain(unread.iter().map(|(kind, _)| kind.as_str()))
        .collect();
    if !kinds.is_empty() {
        text.push_str(&format!(
            "\nnext: have an administrator bind the RBAC verbs get, list and patch on {} to {me}, if \
             that is what is missing, and run this again",
            kinds.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Cause;
    use crate::objects::ObjectRef;

    fn left(name: &str, why: Why) -> Left {
        let target = ObjectRef::new(("", "configmaps"), "shop", name);
        Left { target, why }
    }

    fn in_use() -> Why {
        Why::InUse(vec![Cause::Finalizer("Pod shop/web".to_owned())])
    }

    #[test]
    fn what_is_left_is_named_with_the_reason_and_what_next() {
        let refused = || Why::Refused("the API server answers 403: cannot patch".to_owned());
        let ended = Ended {
            tally: Tally { released: 1200, let_go: 2, abandoned: 0 },
            left: vec![left("a", in_use()), left("b", refused()), left("c", refused())],
            unread: vec![("secrets".to_owned(), "secrets is forbidden: no".to_owned())],
        };
        assert_eq!(
            rest(&ended, "bob"),
            "released 1200 holds, let go of 2 that were Terminating; left are:\n\
             - configmaps/a -n shop: it waits for Pod shop/web\n\
             - 2 configmaps: the API server answers 403: cannot patch\n\
             - secrets, which could not be listed: secrets is forbidden: no\n\
             next: run this again to wait on, or with --abandon to let go of what is in use\n\
             next: have an administrator bind the RBAC verbs get, list and patch on configmaps, \
             secrets to bob, if that is what is missing, and run this again"
        );
        let many = (0..NAMED + 3).map(|n| left(&n.to_string(), in_use())).collect();
        let ended = Ended { left: many, ..Ended::default() };
        let text = rest(&ended, "bob");
        assert!(text.contains("\n- and 3 more\n"), "{text}");
        assert!(!text.contains("RBAC"), "{text}");
    }

    #[test]
    fn a_dry_run_says_what_would_be_done() {
        assert_eq!(would(&Ended::default()), "nothing has a hold\n");
        let ended = Ended {
            tally: Tally { let_go: 1, ..Tally::default() },
            left: vec![left("a", Why::Untouched), left("b", Why::Untouched), left("c", in_use())],
            unread: Vec::new(),
        };
        assert_eq!(
            would(&ended),
            "would take 2 holds off configmaps\nwould let go of 1 that are Terminating\n\
             would wait for configmaps/c -n shop: it waits for Pod shop/web\n"
        );
    }

    #[test]
    fn what_stops_it_says_what_was_changed_and_what_next() {
        let settings =
            Settings { namespace: "ops".into(), name: "guard".into(), ..Settings::of_test(&[]) };
        let said = why(
            &settings,
            &NotBegun::Elsewhere { namespace: Some("belay".to_owned()), name: "guard".to_owned() },
        );
        assert!(said.ends_with("nothing was changed; next: --installation=belay/guard"), "{said}");
        let forbidden = crate::objects::ApiError::Forbidden("cannot delete".to_owned());
        let not_begun = NotBegun::Configuration("X guard".to_owned(), forbidden);
        let said = CommandError::Remote(why(&settings, &not_begun)).to_string();
        assert!(said.starts_with("cannot delete the X guard: cannot delete"), "{said}");
        assert!(said.contains("the RBAC verb delete on mutatingwebhookconfigurations"), "{said}");
    }
}
