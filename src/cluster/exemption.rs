//! Records an exemption as a DeletionApproval. belay then admits the requests that the garbage
//! collector sends after the exempt request. When a subject that is not exempt deletes the object,
//! belay makes the record an exemption bar.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::api::{self, Detail, patch_request, post_params};
use crate::decide::Exemption;
use crate::objects::{ApiError, ObjectRef, Uid, read_tolerant, short_digest};
use crate::policy::api::{
    DeletionApproval, DeletionApprovalSpec, MAX_APPROVAL_SECONDS, RECORD_PREFIX, Scope, TargetRef,
    kind_info,
};
use crate::policy::{Approval, PolicySource};

/// The margin below the maximum lifetime. The API server computes the lifetime with its own clock,
/// which may differ a little.
const SKEW_SECONDS: i64 = 300;

/// The maximum length of the stored reason.
const REASON: usize = 1024;

/// How often belay tries to change an old approval. Other replicas may change it at the same time.
const ATTEMPTS: usize = 10;

/// The approval that records an exemption, or bars exemptions. An object has at most one, so that
/// many exempt subjects do not fill its list of approvals (H170).
pub fn approval_of(
    target: &ObjectRef,
    exemption: &Exemption,
    own: &str,
    now: Timestamp,
) -> DeletionApproval {
    let Exemption { uid, user, policies, seconds, .. } = exemption;
    let seconds = (*seconds).clamp(1, MAX_APPROVAL_SECONDS - SKEW_SECONDS);
    let until = Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(now);
    let (scope, reason) = match exemption.is_bar() {
        true => {
            let why = "deletes this object and is not exempt, so no exemption of it counts until";
            (Scope::Object, format!("{user} {why} {until}"))
        }
        false => (Scope::Content, format!("{user} is exempt by {}", sources(policies))),
    };
    let exempts = policies.iter().filter_map(|source| match source {
        PolicySource::Policy(name) => Some(name.clone()),
        PolicySource::Label(_) => None,
    });
    let spec = DeletionApprovalSpec {
        target_ref: TargetRef::new(target, uid),
        approver: own.to_owned(),
        reason: reason.chars().take(REASON).collect(),
        expiration_time: Time(until),
        scope,
        exempts: exempts.collect(),
    };
    DeletionApproval::new(&format!("{RECORD_PREFIX}{}", short_digest(uid)), spec)
}

/// The message about an approval that could not be written.
pub fn unrecorded_message(exemption: &Exemption, error: &ApiError) -> String {
    let Exemption { user, policies, .. } = exemption;
    match exemption.is_bar() {
        true => format!("the recorded exemption of this object could not be barred: {error}"),
        false => {
            format!(
                "the exemption of {user} by {} could not be recorded: {error}",
                sources(policies)
            )
        }
    }
}

fn sources(policies: &[PolicySource]) -> String {
    policies.iter().map(PolicySource::to_string).collect::<Vec<_>>().join(", ")
}

/// Compares the wanted approval with the existing one of its name. `None`: belay has to change the
/// existing one.
fn compare(
    existing: &Approval,
    wanted: &DeletionApproval,
    now: Timestamp,
) -> Option<Result<(), ApiError>> {
    let spec = &wanted.spec;
    if existing.approver != spec.approver {
        return Some(Err(name_is_taken(&existing.name)));
    }
    let seconds_left = existing.expires.saturating_sub(now.as_second());
    let exempts = existing.exempts.iter().map(|source| match source {
        PolicySource::Policy(name) => name.as_str(),
        PolicySource::Label(value) => value,
    });
    let is_equal = existing.target == spec.target_ref.object_ref()
        && existing.target_uid == Uid::new(&spec.target_ref.uid)
        && exempts.eq(spec.exempts.iter().map(String::as_str));
    let wanted_time = spec.expiration_time.0.duration_since(now);
    if is_equal && seconds_left > 0 && SignedDuration::from_secs(seconds_left) >= wanted_time / 2 {
        return Some(Ok(()));
    }
    // The API server stores the other subject's request before the bar expires, or never (H169).
    let is_barred = existing.exempts.is_empty() && !spec.exempts.is_empty() && seconds_left > 0;
    is_barred.then(|| {
        let why = "another subject deletes this object at the same time; try again in two minutes";
        Err(ApiError::Other(why.to_owned()))
    })
}

/// Predicts the result of the write from the known approvals of the object, so that belay need not
/// send it. `None`: belay has to write.
pub fn predict(
    known: &[Approval],
    wanted: &DeletionApproval,
    now: Timestamp,
) -> Option<Result<(), ApiError>> {
    let mut same = known.iter().filter(|known| wanted.metadata.name.as_ref() == Some(&known.name));
    same.find_map(|known| compare(known, wanted, now))
}

fn name_is_taken(name: &str) -> ApiError {
    ApiError::Other(format!(
        "DeletionApproval {name} has the name of belay's record and can't be replaced: delete it"
    ))
}

/// Creates the approval. Keeps an existing equal approval that stays valid for a while. Changes any
/// other approval of belay with this name in place, so that the object always has one (H175). A
/// record replaces a bar only after the bar has expired.
pub async fn write(client: &kube::Client, approval: &DeletionApproval) -> Result<(), ApiError> {
    let api: Api<DeletionApproval> = Api::all(client.clone());
    let info = kind_info::<DeletionApproval>();
    let name = approval.metadata.name.as_deref().unwrap_or_default();
    for _ in 0..ATTEMPTS {
        match api.create(&post_params(false), approval).await.map_err(ApiError::from) {
            Ok(_) => return Ok(()),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        let Some(existing) = read_existing(client, name).await? else { continue };
        // An approval that is being deleted permits nothing.
        let Some(compiled) = Approval::compile(&existing) else { continue };
        if let Some(result) = compare(&compiled, approval, Timestamp::now()) {
            return result;
        }
        let patch = change(&existing, &approval.spec);
        let request = patch_request(&info, ("", name), &Patch::Merge(patch), Detail::Metadata)?;
        match api::answer(client, request).await {
            Ok(_) => return Ok(()),
            // Another replica has changed or deleted it.
            Err(error) if error.is_conflict() || error == ApiError::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::Other(format!("DeletionApproval {name} changes all the time; try again")))
}

/// The patch that changes the existing approval to the wanted one. It fails if the approval was
/// re-created. A record also fails if the approval has changed since belay compared it. A bar
/// replaces any state, so that no flood of records keeps it from being written (H175).
fn change(existing: &DeletionApproval, wanted: &DeletionApprovalSpec) -> Value {
    let is_bar = wanted.exempts.is_empty();
    let version = existing.metadata.resource_version.as_ref().filter(|_| !is_bar);
    let mut metadata = json!({"uid": existing.metadata.uid});
    if let Some(version) = version {
        metadata["resourceVersion"] = json!(version);
    }
    let mut spec = json!(wanted);
    if is_bar {
        spec["exempts"] = Value::Null;
    }
    json!({"metadata": metadata, "spec": spec})
}

/// The approval of belay with this name that exists now.
pub async fn read(client: &kube::Client, name: &str) -> Result<Option<Approval>, ApiError> {
    Ok(read_existing(client, name).await?.as_ref().and_then(Approval::compile))
}

/// The approval with this name, without its managedFields, which others may have made unreadable
/// (H140).
async fn read_existing(
    client: &kube::Client,
    name: &str,
) -> Result<Option<DeletionApproval>, ApiError> {
    let info = kind_info::<DeletionApproval>();
    let Some(json) = api::object(client, &info, "", name, Detail::Whole).await? else {
        return Ok(None);
    };
    let existing = read_tolerant(&json).and_then(DeletionApproval::deserialize);
    existing.map(Some).map_err(|_| name_is_taken(name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

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
            why_unknown: None,
        }
    }

    fn approval(exemption: &Exemption, seconds: i64) -> DeletionApproval {
        let target = ObjectRef::new(("apps", "deployments"), "shop", "web");
        approval_of(&target, exemption, "belay", at(seconds))
    }

    #[test]
    fn a_record_names_user_policies_and_expiry() {
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

    fn bar() -> Exemption {
        Exemption { user: "bob".to_owned(), policies: Vec::new(), seconds: 120, ..exemption() }
    }

    /// The stored form of an approval.
    fn stored(approval: &DeletionApproval) -> DeletionApproval {
        let mut stored = approval.clone();
        stored.metadata.creation_timestamp = Some(Time(at(0)));
        stored
    }

    fn compared(
        existing: &DeletionApproval,
        wanted: &DeletionApproval,
        seconds: i64,
    ) -> Option<Result<(), String>> {
        let existing = Approval::compile(&stored(existing)).unwrap();
        let result = compare(&existing, wanted, at(seconds))?;
        Some(result.map_err(|error| error.to_string()))
    }

    #[test]
    fn h170_an_object_has_one_record_of_all_its_exemptions() {
        let name = |exemption: &Exemption| approval(exemption, 0).metadata.name;
        let alice = Some(name(&exemption()));
        let bob = Exemption { user: "bob".to_owned(), ..exemption() };
        assert_eq!(alice, Some(name(&bob)));
        assert_eq!(alice, Some(name(&bar())));
        assert_ne!(alice, Some(name(&Exemption { uid: "2".to_owned(), ..exemption() })));
        // A record of other policies replaces it.
        let web = vec![PolicySource::Policy("web".to_owned())];
        let web = approval(&Exemption { policies: web, ..exemption() }, 0);
        let record = approval(&exemption(), 0);
        assert_eq!(compared(&record, &approval(&bob, 0), 0), Some(Ok(())));
        assert_eq!(compared(&record, &web, 0), None);
    }

    #[test]
    fn h169_a_bar_replaces_a_record_and_no_record_replaces_a_bar_that_has_not_expired() {
        let record = |seconds| approval(&exemption(), seconds);
        let bar = |seconds| approval(&bar(), seconds);
        let DeletionApprovalSpec { reason, expiration_time, scope, .. } = bar(0).spec;
        assert_eq!((scope, expiration_time.0), (Scope::Object, at(120)));
        let why = "bob deletes this object and is not exempt, so no exemption of it counts until";
        assert_eq!(reason, format!("{why} {}", at(120)));
        assert_eq!(compared(&record(0), &bar(0), 0), None);
        let barred = |seconds| compared(&bar(0), &record(seconds), seconds);
        for seconds in [0, 119] {
            let why = barred(seconds).unwrap().unwrap_err();
            assert!(why.contains("another subject deletes this object"), "{why}");
        }
        assert_eq!(barred(120), None);
        let kept = |seconds| compared(&bar(0), &bar(seconds), seconds);
        assert_eq!((kept(60), kept(61)), (Some(Ok(())), None));
        // For a known approval, belay sends nothing.
        let known = [Approval::compile(&stored(&bar(0))).unwrap()];
        assert!(predict(&known, &record(0), at(0)).is_some_and(|result| result.is_err()));
        let other = approval(&Exemption { uid: "2".to_owned(), ..exemption() }, 0);
        assert_eq!(predict(&known, &other, at(0)), None);
    }

    /// Writes an approval while an object with its name exists. A GET of this object returns the
    /// given answer. Returns the result and the patches.
    async fn write_beside(
        wanted: &Exemption,
        (code, existing): (u16, String),
    ) -> (Result<(), ApiError>, Vec<Value>) {
        let patches = Arc::<Mutex<Vec<Value>>>::default();
        let heard = patches.clone();
        let client = local_client(move |request| {
            Some(match *request.method() {
                http::Method::POST => failure_of(409),
                http::Method::GET => (code, existing.clone()),
                _ => {
                    heard.lock().push(request.into_body());
                    (200, existing.clone())
                }
            })
        });
        let now = Timestamp::now().as_second() - NOW;
        let result = write(&client, &approval(wanted, now)).await;
        (result, std::mem::take(&mut patches.lock()))
    }

    fn failure_of(code: u16) -> (u16, String) {
        let (code, answer) = failure(code, "no", ("deletionapprovals", "one"));
        (code, answer.to_string())
    }

    /// Values of managedFields that no typed read accepts.
    fn unreadable_managed_fields() -> [Value; 2] {
        let deep = (0..130).fold(json!({}), |inner, _| json!({"f:a": inner}));
        [json!([{"fieldsV1": deep}]), json!([{"time": "9999-12-31T23:59:59-23:59"}])]
    }

    #[tokio::test]
    async fn h57_an_object_of_others_with_the_name_of_a_record_is_named() {
        let mut taken = stored(&approval(&exemption(), 0));
        taken.spec.approver = "mallory".to_owned();
        let taken = serde_json::to_string(&taken).unwrap();
        for existing in [(200, taken), (200, r#"{"spec":1}"#.to_owned())] {
            let (result, patches) = write_beside(&exemption(), existing).await;
            let why = result.unwrap_err().to_string();
            assert!(why.contains("has the name of belay's record"), "{why}");
            assert_eq!(patches, Vec::<Value>::new());
        }
        let (result, ..) = write_beside(&exemption(), (500, "json: exceeded".to_owned())).await;
        result.unwrap_err();
    }

    #[tokio::test]
    async fn h140_h175_a_record_with_unreadable_managed_fields_is_kept_or_changed_in_place() {
        let mut existing = stored(&approval(&exemption(), 0));
        existing.spec.expiration_time =
            Time(Timestamp::now() + SignedDuration::from_hours(100_000));
        let mut existing = serde_json::to_value(&existing).unwrap();
        existing["metadata"]["uid"] = json!("one");
        existing["metadata"]["resourceVersion"] = json!("7");
        for managed_fields in unreadable_managed_fields() {
            existing["metadata"]["managedFields"] = managed_fields;
            let beside = |wanted: Exemption| {
                let existing = (200, existing.to_string());
                async move { write_beside(&wanted, existing).await }
            };
            assert_eq!(beside(exemption()).await, (Ok(()), Vec::new()));
            let web = vec![PolicySource::Policy("web".to_owned())];
            let (result, patches) = beside(Exemption { policies: web, ..exemption() }).await;
            let [record] = &patches[..] else { panic!("{result:?} {patches:?}") };
            assert_eq!(record["metadata"], json!({"uid": "one", "resourceVersion": "7"}));
            assert_eq!(record["spec"]["exempts"], json!(["web"]));
            // Without a resourceVersion, a record that is written meanwhile does not stop the bar.
            let (result, patches) = beside(bar()).await;
            let [bar] = &patches[..] else { panic!("{result:?} {patches:?}") };
            assert_eq!(bar["metadata"], json!({"uid": "one"}));
            assert_eq!(
                (&bar["spec"]["exempts"], &bar["spec"]["scope"]),
                (&Value::Null, &json!("Object"))
            );
        }
    }

    #[test]
    fn an_existing_record_is_sufficient_for_half_of_the_time() {
        let existing = approval(&exemption(), 0);
        let good = |seconds| compared(&existing, &approval(&exemption(), seconds), seconds);
        assert_eq!((good(0), good(300)), (Some(Ok(())), Some(Ok(()))));
        assert_eq!((good(301), good(601)), (None, None));
    }
}
