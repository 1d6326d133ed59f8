//! Records an exemption as a DeletionApproval. belay then admits the requests that the garbage
//! collector sends after the exempt request.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use serde::Deserialize as _;

use super::api::{self, Detail, delete_exactly, post_params};
use crate::decide::{Exemption, RevokedRecord};
use crate::objects::{ApiError, ObjectRef, read_shallow, short_digest};
use crate::policy::PolicySource;
use crate::policy::api::{
    DeletionApproval, DeletionApprovalSpec, MAX_APPROVAL_SECONDS, Scope, TargetRef, kind_info,
};

/// The margin below the maximum lifetime. The API server computes the lifetime with its own clock,
/// which may differ a little.
const SKEW_SECONDS: i64 = 300;

/// The maximum length of the stored reason.
const REASON: usize = 1024;

/// How often belay tries to replace an old approval.
const ATTEMPTS: usize = 3;

/// The approval that records an exemption. Repeated reviews of a request give the same name.
pub fn approval_of(
    target: &ObjectRef,
    exemption: &Exemption,
    own: &str,
    now: Timestamp,
) -> DeletionApproval {
    let Exemption { uid, user, policies, seconds } = exemption;
    let seconds = (*seconds).clamp(1, MAX_APPROVAL_SECONDS - SKEW_SECONDS);
    let until = Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(now);
    let reason = format!("{user} is exempt by {}", sources(policies));
    let exempts = policies.iter().filter_map(|source| match source {
        PolicySource::Policy(name) => Some(name.clone()),
        PolicySource::Label(_) => None,
    });
    let spec = DeletionApprovalSpec {
        target_ref: TargetRef::new(target, uid),
        approver: own.to_owned(),
        reason: reason.chars().take(REASON).collect(),
        expiration_time: Time(until),
        scope: Scope::Content,
        exempts: exempts.collect(),
    };
    DeletionApproval::new(&name(exemption), spec)
}

/// The message about an approval that could not be deleted.
pub fn unrevoked(record: &RevokedRecord, error: &ApiError) -> String {
    format!("the record of an exemption, {}, could not be deleted: {error}", record.name)
}

/// The message about an approval that could not be written.
pub fn unrecorded(exemption: &Exemption, error: &ApiError) -> String {
    let Exemption { user, policies, .. } = exemption;
    format!("the exemption of {user} by {} could not be recorded: {error}", sources(policies))
}

fn sources(policies: &[PolicySource]) -> String {
    policies.iter().map(PolicySource::to_string).collect::<Vec<_>>().join(", ")
}

/// The prefix of the names of these approvals.
const PREFIX: &str = "belay-exempts-";

/// Whether the name of an approval is that of an exemption record.
pub fn is_recorded(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Two exemptions with the same name can only replace each other, because an approval covers only
/// the object that it contains.
fn name(exemption: &Exemption) -> String {
    let digest = short_digest(&(&exemption.uid, &exemption.user, &exemption.policies));
    format!("{PREFIX}{digest}")
}

/// Whether an existing approval equals the wanted one and stays valid for at least half
/// of the time.
fn is_sufficient(existing: &DeletionApproval, wanted: &DeletionApproval, now: Timestamp) -> bool {
    let (there, spec) = (&existing.spec, &wanted.spec);
    let left = |spec: &DeletionApprovalSpec| spec.expiration_time.0.duration_since(now);
    let same = there.target_ref == spec.target_ref
        && there.approver == spec.approver
        && there.scope == spec.scope
        && there.exempts == spec.exempts;
    let left_of_it = left(there);
    same && existing.metadata.deletion_timestamp.is_none()
        && left_of_it > SignedDuration::ZERO
        && left_of_it >= left(spec) / 2
}

/// Creates the approval. An existing equal approval that stays valid for a while is kept, and any
/// other one with this name is replaced.
pub async fn write(client: &kube::Client, approval: &DeletionApproval) -> Result<(), ApiError> {
    let api: Api<DeletionApproval> = Api::all(client.clone());
    let name = approval.metadata.name.clone().unwrap_or_default();
    let parameters = post_params(false);
    let mut approval = approval.clone();
    for attempt in 1..=ATTEMPTS {
        // An approver may have created an approval with this name, and may do so again.
        if attempt == ATTEMPTS {
            approval.metadata.generate_name = Some(format!("{name}-"));
            approval.metadata.name = None;
        }
        match api.create(&parameters, &approval).await.map_err(ApiError::from) {
            Ok(_) => return Ok(()),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        // The creator may have made it unreadable (H140).
        let Some(existing) = read_existing(client, &name).await else { continue };
        if is_sufficient(&existing, &approval, Timestamp::now()) {
            return Ok(());
        }
        // If the existing approval can't be replaced, the last attempt uses another name.
        let _ = delete_exactly(&api, &name, existing.metadata.uid).await;
    }
    let why = format!("DeletionApproval {name} is there, expires soon, and cannot be replaced");
    Err(ApiError::Other(why))
}

/// The approval with this name, without its managedFields; `None` if it can't be read.
async fn read_existing(client: &kube::Client, name: &str) -> Option<DeletionApproval> {
    let info = kind_info::<DeletionApproval>();
    let json = api::object(client, &info, "", name, Detail::Whole).await.ok()??;
    read_shallow(&json).and_then(DeletionApproval::deserialize).ok()
}

/// Deletes a record, because a subject that is not exempt deletes the same object. The record must
/// not permit the cascade of that deletion.
pub async fn revoke(client: &kube::Client, record: &RevokedRecord) -> Result<(), ApiError> {
    let api: Api<DeletionApproval> = Api::all(client.clone());
    match delete_exactly(&api, &record.name, Some(record.uid.clone())).await {
        Err(error) if !error.is_conflict() => Err(error),
        // It was deleted, or a newer one has its name.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::local_api::{failure, local_client};

    const NOW: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(NOW + seconds).unwrap()
    }

    fn exemption() -> Exemption {
        Exemption {
            uid: "11111111-1111-4111-8111-111111111111".to_owned(),
            user: "alice".to_owned(),
            policies: vec![
                PolicySource::Policy("vault".to_owned()),
                PolicySource::Policy("web".to_owned()),
            ],
            seconds: 600,
        }
    }

    fn approval(exemption: &Exemption, seconds: i64) -> DeletionApproval {
        let target = ObjectRef::new(("apps", "deployments"), "shop", "web");
        approval_of(&target, exemption, "belay", at(seconds))
    }

    #[test]
    fn it_says_who_was_exempt_of_what_and_until_when() {
        let DeletionApprovalSpec { target_ref, approver, reason, expiration_time, scope, exempts } =
            approval(&exemption(), 0).spec;
        assert_eq!(target_ref.uid, exemption().uid);
        assert_eq!(
            (target_ref.resource.as_str(), target_ref.name.as_str()),
            ("deployments", "web")
        );
        assert_eq!((approver.as_str(), scope), ("belay", Scope::Content));
        assert_eq!(reason, "alice is exempt by policy vault, policy web");
        assert_eq!(expiration_time.0, at(600));
        assert_eq!(exempts, ["vault", "web"]);
        // The API server accepts no longer lifetime, even if the policy allows it.
        let long = Exemption { seconds: i64::MAX, ..exemption() };
        let until = approval(&long, 0).spec.expiration_time.0;
        assert_eq!(until, at(MAX_APPROVAL_SECONDS - SKEW_SECONDS));
    }

    #[test]
    fn a_request_that_is_asked_about_twice_has_one_name() {
        let name = |exemption: &Exemption, seconds| approval(exemption, seconds).metadata.name;
        assert_eq!(name(&exemption(), 0), name(&exemption(), 100));
        let others = [
            Exemption { user: "bob".to_owned(), ..exemption() },
            Exemption { uid: "2".to_owned(), ..exemption() },
            Exemption { policies: Vec::new(), ..exemption() },
        ];
        for other in others {
            assert_ne!(name(&exemption(), 0), name(&other, 0));
        }
    }

    /// Writes a record whose name an object has that is read as this answer. Returns the prefix of
    /// the name of each creation, if it has one.
    async fn write_beside(code: u16, existing: String) -> Vec<Option<String>> {
        let created = Arc::<Mutex<Vec<Option<String>>>>::default();
        let heard = created.clone();
        let client = local_client(move |request| {
            if request.method() != http::Method::POST {
                return Some((code, existing.clone()));
            }
            let sent: DeletionApproval = serde_json::from_value(request.body().clone()).unwrap();
            heard.lock().push(sent.metadata.generate_name.clone());
            let (code, answer) = match sent.metadata.name {
                Some(name) => failure(409, "it exists", ("deletionapprovals", &name)),
                None => (201, request.into_body()),
            };
            Some((code, answer.to_string()))
        });
        write(&client, &approval(&exemption(), 0)).await.unwrap();
        let created = created.lock();
        created.clone()
    }

    /// What managedFields of an approval may contain that no typed read accepts.
    fn unreadable_managed_fields() -> [Value; 2] {
        let deep = (0..130).fold(json!({}), |inner, _| json!({"f:a": inner}));
        [json!([{"fieldsV1": deep}]), json!([{"time": "9999-12-31T23:59:59-23:59"}])]
    }

    /// An object has the name, and a finalizer keeps it.
    #[tokio::test]
    async fn h57_a_record_whose_name_is_taken_gets_another_one() {
        let wanted = approval(&exemption(), 0);
        let mut taken = wanted.clone();
        taken.spec.approver = "mallory".to_owned();
        taken.metadata.deletion_timestamp = Some(Time(at(0)));
        let name = wanted.metadata.name.unwrap();
        assert!(is_recorded(&name));
        let last = Some(Some(format!("{name}-")));
        let taken = serde_json::to_value(&taken).unwrap();
        assert_eq!(write_beside(200, taken.to_string()).await.pop(), last);
        // H140: the name is taken by an object that belay can't read as a whole, or not at all.
        for managed_fields in unreadable_managed_fields() {
            let mut taken = taken.clone();
            taken["metadata"]["managedFields"] = managed_fields;
            assert_eq!(write_beside(200, taken.to_string()).await.pop(), last);
        }
        for (code, answer) in [(200, r#"{"spec":1}"#), (500, "json: exceeded max depth")] {
            assert_eq!(write_beside(code, answer.to_owned()).await.pop(), last);
        }
    }

    #[tokio::test]
    async fn h140_a_record_with_unreadable_managed_fields_is_kept() {
        let mut existing = approval(&exemption(), 0);
        existing.spec.expiration_time =
            Time(Timestamp::now() + SignedDuration::from_hours(100_000));
        let mut existing = serde_json::to_value(&existing).unwrap();
        for managed_fields in unreadable_managed_fields() {
            existing["metadata"]["managedFields"] = managed_fields;
            assert_eq!(write_beside(200, existing.to_string()).await, [None]);
        }
    }

    #[test]
    fn what_is_there_is_good_for_half_of_the_time() {
        let existing = approval(&exemption(), 0);
        let good =
            |seconds| is_sufficient(&existing, &approval(&exemption(), seconds), at(seconds));
        assert!(good(0) && good(300));
        assert!(!good(301) && !good(601));
        let mut other = existing.clone();
        other.spec.approver = "mallory".to_owned();
        assert!(!is_sufficient(&other, &existing, at(0)));
        let mut ending = existing.clone();
        ending.metadata.deletion_timestamp = Some(Time(at(0)));
        assert!(!is_sufficient(&ending, &existing, at(0)));
    }
}
