//! `belay admin selftest`: tests whether an installation protects objects.

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use crate::cluster::Caller;
use crate::cluster::selftest::{Answer, Probe};
use crate::command::access::AccessArguments;
use crate::command::duration::parse_timeout;
use crate::command::report::{Format, FormatArguments, Report, View};
use crate::command::signals::catch_signal;
use crate::command::{CommandError, block_on, print};
use crate::policy::exempt_namespaces;

/// The interval between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How long the test retries after a missing permission: a new permission reaches the API servers
/// with a delay.
const PERMISSION_LIMIT: Duration = Duration::from_secs(5);

const HELP: &str = "\
Stages:
  1  A new ConfigMap with the label belay.dev/protect gets the hold (dry run)
  2  The DELETE of an Event with that label is denied (dry run)
  3  Cleanup: only that Event may remain, which the API server deletes
     automatically, by default after one hour; until then belay denies its
     deletion

Exit codes: 0: belay protects; 1: belay does not protect; 2: wrong arguments; 3: unknown";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct SelftestArguments {
    /// The namespace for the test. Use a permanent one such as default, and not belay's
    /// own, kube-system or kube-node-lease, which belay ignores
    #[arg(short, long, value_name = "NAME")]
    namespace: String,

    /// The maximum time to wait. A new installation needs some time until
    /// belay receives requests
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_timeout)]
    timeout: Duration,

    #[command(flatten)]
    output: FormatArguments,

    #[command(flatten)]
    access: AccessArguments,
}

/// The result of a self-test.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelftestReport {
    /// The namespace of the test.
    namespace: String,
    /// Whether the test passed.
    passed: bool,
    /// The started stages, in order.
    stages: Vec<TestStage>,
    /// The error and the next step. Absent if the test passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "says")]
    message: Option<String>,
    #[serde(skip)]
    exit_code: u8,
}

/// One stage.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TestStage {
    /// The number of the stage.
    stage: u8,
    /// The description of the stage.
    what: String,
    /// Whether the stage passed.
    passed: bool,
    /// The seconds since the start of the test.
    seconds: f64,
    /// The observation or the error. Absent if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[serde(rename = "says")]
    message: String,
}

impl Report for SelftestReport {
    const KIND: &'static str = "Selftest";

    fn text(&self, _: View) -> String {
        // `Test::record` has printed each stage.
        String::new()
    }

    fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

pub fn run(arguments: SelftestArguments) -> Result<ExitCode, CommandError> {
    if exempt_namespaces(None).any(|exempt| exempt == arguments.namespace) {
        return Err(CommandError::Usage(format!(
            "the API server never asks belay about namespace {}; name another one, such as default",
            arguments.namespace
        )));
    }
    block_on(test(arguments))?
}

async fn test(arguments: SelftestArguments) -> Result<ExitCode, CommandError> {
    let SelftestArguments { namespace, timeout, output, access } = arguments;
    let caller = Caller::connect(&access.into()).await?;
    let test = Test {
        probe: Probe::new(&caller.client, &namespace),
        namespace,
        limit: timeout,
        deadline: Instant::now() + timeout,
        format: output.output,
        stages: RefCell::default(),
    };
    tokio::select! {
        result = test.stages() => test.finish(result),
        signal = catch_signal() => {
            let remaining = if test.probe.delete_event().await { "no objects remain" } else {
                "its Event may remain and expires automatically"
            };
            Err(CommandError::Remote(format!("interrupted by {signal}; {remaining}")))
        }
    }
}

struct Test {
    probe: Probe,
    namespace: String,
    limit: Duration,
    deadline: Instant,
    format: Format,
    /// The results so far.
    stages: RefCell<Vec<TestStage>>,
}

impl Test {
    async fn stages(&self) -> Result<(), CommandError> {
        let name = &self.probe.name;
        let namespace = &self.namespace;
        self.stage(1, "the hold is added", NOT_HELD, async || self.probe.is_held().await).await?;
        let denied = async || match self.probe.create_event().await {
            Answer::Right(_) => self.probe.is_denied().await,
            other => other,
        };
        let denied = self.stage(2, "a DELETE is refused", NOT_DENIED, denied).await;
        if denied.is_err() {
            let remaining = if self.probe.delete_event().await {
                "no objects remain".to_owned()
            } else {
                format!("Event {namespace}/{name} expires automatically")
            };
            self.record(3, "cleanup", (true, 0.0), remaining.clone(), &remaining)?;
            return denied;
        }
        let remaining =
            format!("only Event {namespace}/{name} remains, which expires automatically");
        self.record(3, "cleanup", (true, 0.0), remaining.clone(), &remaining)
    }

    /// Records the result of a stage. In the table format, prints it.
    fn record(
        &self,
        stage: u8,
        what: &str,
        (passed, seconds): (bool, f64),
        message: String,
        result_text: &str,
    ) -> Result<(), CommandError> {
        self.stages.borrow_mut().push(TestStage {
            stage,
            what: what.to_owned(),
            passed,
            seconds,
            message,
        });
        match self.format {
            Format::Table => print(&line(stage, what, result_text)),
            _ => Ok(()),
        }
    }

    /// Prints the report. In the table format, a failed test is an error.
    fn finish(&self, result: Result<(), CommandError>) -> Result<ExitCode, CommandError> {
        let (exit_code, message) = match &result {
            Ok(()) => (0, None),
            Err(error) => (error.exit_code(), Some(error.to_string())),
        };
        let tested = SelftestReport {
            namespace: self.namespace.clone(),
            passed: result.is_ok(),
            stages: self.stages.borrow().clone(),
            message,
            exit_code,
        };
        match self.format {
            Format::Table => result.map(|()| ExitCode::SUCCESS),
            format => tested.print(format),
        }
    }

    /// Runs a stage: retries the check until it succeeds or the time is over. `hint`: the next step
    /// after a failure.
    async fn stage(
        &self,
        number: u8,
        what: &str,
        hint: &str,
        check: impl AsyncFn() -> Answer,
    ) -> Result<(), CommandError> {
        let began = Instant::now();
        let limit = self.limit.as_secs();
        // The reason of the failure, and whether the check ran.
        let (why, has_run) = loop {
            let why = match check().await {
                Answer::Right(detail) => {
                    let took = began.elapsed().as_secs_f64();
                    let suffix =
                        if detail.is_empty() { String::new() } else { format!(": {detail}") };
                    let result_text = format!("ok after {took:.1} s{suffix}");
                    return self.record(number, what, (true, took), detail, &result_text);
                }
                Answer::Forbidden(why) if began.elapsed() >= PERMISSION_LIMIT => {
                    break (why, false);
                }
                Answer::Never(why) => break (why, true),
                Answer::NotYet(why) | Answer::Forbidden(why) => why,
            };
            if Instant::now() + RETRY_INTERVAL >= self.deadline {
                break (format!("after {limit} s: {why}"), true);
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        };
        let took = began.elapsed().as_secs_f64();
        self.record(number, what, (false, took), why.clone(), "FAILED")?;
        Err(match has_run {
            true => CommandError::Refused(format!(
                "stage {number} of 3 ({what}) failed in namespace {}: {why}. Next: {hint}",
                self.namespace
            )),
            false => CommandError::Remote(format!(
                "stage {number} of 3 ({what}) could not be tried: {why}; next: have an administrator \
                 bind the RBAC verbs create on configmaps, and create and delete on events, in \
                 namespace {}",
                self.namespace
            )),
        })
    }
}

fn line(number: u8, what: &str, result_text: &str) -> String {
    format!("{number} of 3  {what:<20}  {result_text}\n")
}

const NOT_HELD: &str = "check that belay's Pods are ready and one is the leader (its log), that \
                        the MutatingWebhookConfiguration has rules (kubectl get deletionpolicies \
                        shows Ready), that configmaps are among --labelled-kinds, and that the \
                        namespace is not belay's own, which is excluded";

const NOT_DENIED: &str = "check that the ValidatingWebhookConfiguration has rules, that its \
                          Service reaches belay's Pods (the message above has the reason), that \
                          belay is not paused (kubectl get pauses), and belay's log";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_printed_in_columns() {
        let text = line(1, "the hold is added", "ok") + &line(2, "a DELETE is refused", "FAILED");
        assert_eq!(
            text,
            "1 of 3  the hold is added     ok\n2 of 3  a DELETE is refused   FAILED\n"
        );
    }

    #[test]
    fn rejects_a_namespace_about_which_belay_is_never_asked() {
        let arguments = SelftestArguments {
            namespace: "kube-system".to_owned(),
            timeout: Duration::from_secs(1),
            output: FormatArguments { output: Format::Table },
            access: AccessArguments::default(),
        };
        let refused = run(arguments).map(drop).map_err(|error| error.to_string());
        assert!(refused.unwrap_err().contains("never asks belay about namespace kube-system"));
    }
}
