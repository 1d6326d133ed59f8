//! `kubectl belay admin schemas`: prints the JSON schemas of the `-o json` output.

use clap::Args;
use serde_json::{Map, Value};

use crate::command::document::List;
use crate::command::report::{Kind, kind};
use crate::command::{
    CommandError, approvals, approve, delete, denials, inspect, pause, policy_tests, print,
    release, status, stuck, undo, why,
};

#[derive(Debug, Args)]
pub struct SchemasArguments {
    /// The kind of documents, such as Why or StuckList [default: all kinds, as one JSON object with
    /// the kind as key]
    #[arg(value_name = "KIND")]
    kind: Option<String>,
}

pub fn run(arguments: SchemasArguments) -> Result<(), CommandError> {
    let kinds = kinds();
    let schema: Value = match arguments.kind {
        None => {
            let all = kinds.into_iter().map(|kind| (kind.name.to_owned(), kind.schema.into()));
            Value::Object(all.collect::<Map<String, Value>>())
        }
        Some(name) => {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
            let unknown = format!("there is no kind {name}; there are {}", names.join(", "));
            let mut kinds = kinds.into_iter();
            let found = kinds.find(|kind| kind.name.eq_ignore_ascii_case(&name));
            found.ok_or(CommandError::Usage(unknown))?.schema.into()
        }
    };
    let text = serde_json::to_string_pretty(&schema)
        .map_err(|error| CommandError::Output(std::io::Error::other(error)))?;
    print(&(text + "\n"))
}

/// All kinds of documents.
fn kinds() -> Vec<Kind> {
    vec![
        kind::<delete::DeleteReport>(),
        kind::<inspect::DeletionPlan>(),
        kind::<inspect::Impact>(),
        kind::<undo::UndoReport>(),
        kind::<inspect::UsedBy>(),
        kind::<why::WhyReport>(),
        kind::<List<why::WhyReport>>(),
        kind::<stuck::StuckReport>(),
        kind::<approve::ApproveOutput>(),
        kind::<List<approve::ApproveOutput>>(),
        kind::<List<approvals::ApprovalReport>>(),
        kind::<denials::Denials>(),
        kind::<status::StatusReport>(),
        kind::<status::PlanReport>(),
        kind::<pause::PauseOutput>(),
        kind::<pause::PausesEnded>(),
        kind::<release::ReleaseOutput>(),
        kind::<super::UninstallOutput>(),
        kind::<policy_tests::TestReport>(),
        kind::<super::selftest::SelftestReport>(),
    ]
}
