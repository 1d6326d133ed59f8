//! Holds that belay may no longer release.

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::{Detail, ListQuery, read_list, read_names};
use crate::command::diagnosis::{Unreleased, finalizers_of};
use crate::command::session::UserSession;
use crate::objects::{ApiError, KindInfo, counted, is_hold, read_tolerant, split_full_name};

/// A kind with holds that belay may not release.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreleasedHolds {
    /// The kind.
    pub resource: String,
    /// The number of its objects with the hold. Absent if they could not be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<usize>,
    /// Why belay does not release these holds, and the next step.
    #[serde(rename = "says")]
    pub message: String,
}

impl UnreleasedHolds {
    /// Finds the kinds in belay's record that its account may not watch and patch. Empty if the user
    /// may not read the record, or not ask about belay's rights.
    pub async fn read_all(session: &UserSession) -> Vec<Self> {
        let recorded = session.kinds_with_holds().await.unwrap_or_default();
        let asked = recorded.iter().map(|kind| async move {
            let (resource, group) = split_full_name(kind);
            (kind, session.belay_may_release(group, resource).await)
        });
        let answers = join_all(asked).await.into_iter();
        let forbidden: Vec<&String> =
            answers.filter(|(_, may)| *may == Some(false)).map(|(kind, _)| kind).collect();
        if forbidden.is_empty() {
            return Vec::new();
        }
        let Ok(names) = read_names(&session.caller.client).await else { return Vec::new() };
        // A kind that is not served has no objects.
        let served = forbidden.into_iter().filter_map(|kind| names.find(kind));
        let found = join_all(served.map(|info| Self::read(session, info))).await;
        found.into_iter().flatten().collect()
    }

    /// `None` if no object of the kind has the hold.
    async fn read(session: &UserSession, info: &KindInfo) -> Option<Self> {
        let objects = count_holds(&session.caller.client, info).await.ok();
        (objects != Some(0)).then(|| Self {
            resource: info.full_name(),
            objects,
            message: Unreleased::forbidden(&info.group, &info.resource).advice(),
        })
    }

    pub fn line(&self) -> String {
        let objects = match self.objects {
            Some(1) => "1 object has".to_owned(),
            Some(count) => format!("{} have", counted(count, "object")),
            None => "objects may have".to_owned(),
        };
        format!("holds: {objects} belay's hold on {}; {}", self.resource, self.message)
    }
}

/// The number of objects of a kind with belay's hold.
async fn count_holds(client: &kube::Client, info: &KindInfo) -> Result<usize, ApiError> {
    let query = ListQuery { info, namespace: "", detail: Detail::Metadata, labels: "" };
    let add = |count: &mut usize, json: &str| {
        let object = read_tolerant(json).unwrap_or_default();
        *count += usize::from(finalizers_of(&object).into_iter().any(is_hold));
        Ok(())
    };
    read_list(client, query, add).await
}
