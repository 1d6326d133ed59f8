//! `belay pause`: belay records all requests and denies none for some time.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use schemars::JsonSchema;
use serde::Serialize;

use super::CommandError;
use super::confirm::{self, ConfirmArguments};
use super::diagnosis::policy_message;
use super::duration::{format_duration, parse_duration};
use super::place::ClusterArguments;
use super::reason::parse_reason;
use super::report::{FormatArguments, Report, View};
use super::screen::without_controls;
use super::session::UserSession;
use super::status::PauseReport;
use super::webhooks::Webhooks;
use crate::policy::api::{Pause, PauseSpec};

#[derive(Debug, Args)]
pub struct PauseArguments {
    /// The duration, for example 45s, 30m or 1h30m. At most one day
    #[arg(
        long = "for",
        value_name = "DURATION",
        value_parser = parse_duration,
        required_unless_present = "end",
        conflicts_with = "end"
    )]
    lasts: Option<Duration>,

    /// The reason, for the record
    #[arg(
        long,
        value_name = "TEXT",
        value_parser = parse_reason,
        required_unless_present = "end",
        conflicts_with = "end"
    )]
    reason: Option<String>,

    /// End all current pauses
    #[arg(long, conflicts_with = "yes")]
    end: bool,

    #[command(flatten)]
    confirm: ConfirmArguments,

    #[command(flatten)]
    output: FormatArguments,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// A pause that has begun.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PauseOutput {
    /// The pause.
    #[serde(flatten)]
    pause: PauseReport,
    /// The output for people: the effect, and how to end the Pause.
    lines: Vec<String>,
}

impl Report for PauseOutput {
    const KIND: &'static str = "Paused";

    fn text(&self, _: View) -> String {
        text(&self.lines)
    }
}

/// Pauses that were ended.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PausesEnded {
    /// The ended Pauses. Empty if none was active.
    pauses: Vec<PauseReport>,
    /// The output for people.
    lines: Vec<String>,
}

impl Report for PausesEnded {
    const KIND: &'static str = "PauseEnded";

    fn text(&self, _: View) -> String {
        text(&self.lines)
    }
}

pub async fn run(arguments: PauseArguments) -> Result<ExitCode, CommandError> {
    let PauseArguments { lasts, reason, end: _, confirm, output, cluster } = arguments;
    let output = output.output;
    let must_ask = lasts.is_some() && !confirm.is_confirmed();
    let session = UserSession::open(cluster).await?;
    let api: Api<Pause> = Api::all(session.caller.client.clone());
    let webhooks = session.webhooks().await;
    match lasts.zip(reason) {
        Some((lasts, reason)) => {
            if must_ask {
                confirm::ask(&format!(
                    "belay will deny nothing in the whole cluster for {}.",
                    format_duration(lasts)
                ))?;
            }
            let params = PostParams::default();
            let created = api.create(&params, &new_pause(&session, &reason, lasts)).await;
            let created = created.map_err(|error| convert_error(&session, error))?;
            let mut report = pause_output(created, lasts, webhooks.uninstalled.as_deref());
            report.lines.extend(webhooks.why_inactive());
            report.print(output)
        }
        None => end_pauses(&session, &api, &webhooks).await?.print(output),
    }
}

/// The Pause object. It ends by the clock of the API server.
fn new_pause(session: &UserSession, reason: &str, lasts: Duration) -> Pause {
    let spec = PauseSpec {
        by: session.me.name.clone(),
        reason: reason.to_owned(),
        expiration_time: Time(session.end_of(lasts)),
    };
    let mut pause = Pause::new("", spec);
    pause.metadata =
        ObjectMeta { generate_name: Some("pause-".to_owned()), ..ObjectMeta::default() };
    pause
}

/// The output states that enforcement is disabled, and how to enable it.
/// `uninstalled`: the sentence if belay is uninstalled.
fn pause_output(pause: Pause, lasts: Duration, uninstalled: Option<&str>) -> PauseOutput {
    let pause = PauseReport::from_pause(pause);
    let PauseReport { name, by, reason, until } = &pause;
    let end = format!("until {until} ({})", format_duration(lasts));
    let mut lines = match uninstalled {
        Some(uninstalled) => vec![
            uninstalled.to_owned(),
            format!("The pause is stored: if belay is installed, it denies nothing {end}"),
        ],
        None => vec![
            format!("PAUSED: belay denies nothing in the whole cluster {end}"),
            "To list the requests that belay would deny: kubectl belay denials --would".to_owned(),
            "Holds still keep protected objects Terminating, but users may remove holds. The \
             status of every policy reports the pause."
                .to_owned(),
        ],
    };
    lines.push(format!("pause {name} by {by}: {reason}"));
    lines.push("To end the pause: kubectl belay pause --end".to_owned());
    PauseOutput { pause, lines }
}

/// The lines without control characters, because another user may have written the reason.
fn text(lines: &[String]) -> String {
    lines.iter().map(|line| without_controls(line) + "\n").collect()
}

async fn end_pauses(
    session: &UserSession,
    api: &Api<Pause>,
    webhooks: &Webhooks,
) -> Result<PausesEnded, CommandError> {
    let all: Vec<Pause> = session.list_all().await?;
    let active = active_pauses(&all, session.me.now());
    let mut lines = Vec::new();
    for pause in &active {
        let name = pause.metadata.name.as_deref().unwrap_or_default();
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            // Another user has ended it.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(add_ended(&lines, convert_error(session, error))),
        }
        lines.push(format!("ended: pause {name} by {}", pause.spec.by));
    }
    let state = match (active.is_empty(), webhooks.are_inactive()) {
        (true, _) => Some("belay is not paused"),
        (false, true) => None,
        (false, false) => Some("belay enforces its policies again"),
    };
    lines.extend(state.map(str::to_owned).into_iter().chain(webhooks.why_inactive()));
    Ok(PausesEnded {
        pauses: active.into_iter().cloned().map(PauseReport::from_pause).collect(),
        lines,
    })
}

/// Adds the pauses that were already ended to an error.
fn add_ended(ended: &[String], error: CommandError) -> CommandError {
    let with_ended = |text: String| [ended, &[text]].concat().join("; ");
    match error {
        CommandError::Refused(text) => CommandError::Refused(with_ended(text)),
        CommandError::Remote(text) => CommandError::Remote(with_ended(text)),
        other => other,
    }
}

fn active_pauses(all: &[Pause], now: Timestamp) -> Vec<&Pause> {
    all.iter().filter(|pause| now < pause.spec.expiration_time.0).collect()
}

/// Converts an error of the API server.
fn convert_error(session: &UserSession, error: kube::Error) -> CommandError {
    let message = match &error {
        kube::Error::Api(status) if status.code == 403 => {
            policy_message(&status.message).map(str::to_owned)
        }
        _ => None,
    };
    match message {
        // The message is from the ValidatingAdmissionPolicy for pauses.
        Some(message) if message.contains("the RBAC verb pause") => CommandError::Refused(format!(
            "{message}; next: ask an administrator to grant it to {}",
            session.me.name
        )),
        Some(message) => CommandError::Refused(message),
        None => match &error {
            kube::Error::Api(status) if status.code == 403 => {
                CommandError::Refused(format!("you may not: {}", status.message))
            }
            _ => session.own_kind_error::<Pause>(error.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::report::Format;
    use crate::command::screen::Screen;
    use crate::command::webhooks::UNINSTALLED;

    fn pause(name: &str, expires: i64) -> Pause {
        let spec = PauseSpec {
            by: "alice".to_owned(),
            reason: "INC-1234\u{1b}[2J".to_owned(),
            expiration_time: Time(Timestamp::from_second(expires).unwrap()),
        };
        Pause::new(name, spec)
    }

    #[test]
    fn a_pause_reports_what_it_does_and_how_it_ends() {
        let output = pause_output(pause("pause-x", 1_800_000_000), Duration::from_secs(1800), None);
        let render = |format| {
            output
                .render(
                    format,
                    View { screen: Screen::pipe(), all: false, wide: false, verbose: false },
                )
                .unwrap()
        };
        let text = render(Format::Table);
        let first =
            "PAUSED: belay denies nothing in the whole cluster until 2027-01-15T08:00:00Z (30m)";
        assert_eq!(text.lines().next(), Some(first));
        assert!(text.contains("\npause pause-x by alice: INC-1234 [2J\n"), "{text}");
        assert!(text.ends_with("kubectl belay pause --end\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&render(Format::Json)).unwrap();
        let value = |field: &str| json[field].clone();
        assert_eq!((value("kind"), value("name")), ("Paused".into(), "pause-x".into()));
        assert_eq!((value("by"), value("until")), ("alice".into(), "2027-01-15T08:00:00Z".into()));
    }

    #[test]
    fn a_pause_of_an_uninstalled_belay_has_no_effect_yet() {
        let (pause, lasts) = (pause("pause-x", 1_800_000_000), Duration::from_secs(1800));
        let lines = pause_output(pause, lasts, Some(UNINSTALLED)).lines;
        let stored = "The pause is stored: if belay is installed, it denies nothing until \
                      2027-01-15T08:00:00Z (30m)";
        assert_eq!(lines[..2], [UNINSTALLED, stored]);
        assert!(!lines.iter().any(|line| line.contains("PAUSED") || line.contains("status of")));
        assert_eq!(lines.last().unwrap(), "To end the pause: kubectl belay pause --end");
    }

    #[test]
    fn ends_only_active_pauses() {
        let all = [pause("old", 100), pause("new", 200)];
        let now = |second| Timestamp::from_second(second).unwrap();
        let names = |second| {
            let active = active_pauses(&all, now(second));
            active.iter().map(|p| p.metadata.name.clone().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(99), ["old", "new"]);
        assert_eq!(names(100), ["new"]);
        assert_eq!(names(200), [""; 0]);
    }
}
