//! Approvals that have expired, taken away by the leader once nothing that
//! they cover is on its way out: one whose cascade began in time counts until
//! that has ended.

use std::time::Duration;

use kube::api::{Api, DeleteParams};
use tokio::time::{MissedTickBehavior, interval};

use super::api::{self, Trouble};
use super::context::Context;
use super::pace::within;
use super::world::{Detail, World};
use crate::objects::{Object, Uid};
use crate::policy::Approval;
use crate::policy::api::DeletionApproval;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(60);

/// For so long after the end people may want to read what was approved.
const READ: i64 = 600;

/// Takes expired approvals away, for as long as this replica leads.
pub async fn run(context: Context) {
    let mut leading = context.signals.leading.subscribe();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while leading.wait_for(|leading| *leading).await.is_ok() {
        ticks.tick().await;
        if let Err(trouble) = sweep(&context).await {
            let trouble = trouble.words();
            tracing::warn!(trouble, "expired approvals could not be taken away; it is tried again");
        }
    }
}

async fn sweep(context: &Context) -> Result<(), Trouble> {
    let now = jiff::Timestamp::now().as_second();
    let expired: Vec<Approval> = {
        let world = context.world.read();
        let over = world.policies.approvals.iter().filter(|a| a.expires + READ < now);
        over.filter(|approval| !covers_what_waits(&world, approval)).cloned().collect()
    };
    let approvals: Api<DeletionApproval> = Api::all(context.client.clone());
    for approval in expired {
        if is_on_its_way_out(context, &approval).await? {
            continue;
        }
        match within(approvals.delete(&approval.name, &DeleteParams::default())).await {
            Ok(_) => tracing::info!(approval = approval.name, "expired approval taken away"),
            Err(Trouble::NotFound) => {}
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(())
}

/// Of an approval that covers content nobody asks what exactly belongs to it,
/// as long as anything waits.
fn covers_what_waits(world: &World, approval: &Approval) -> bool {
    approval.content && !world.waiting.seen.is_empty()
}

async fn is_on_its_way_out(context: &Context, approval: &Approval) -> Result<bool, Trouble> {
    let info = {
        let kinds = &context.world.read().graph.kinds;
        let kind = kinds.find_resource(&approval.group, &approval.resource);
        kind.map(|kind| kinds.info(kind).clone())
    };
    let Some(info) = info else { return Ok(false) };
    let (namespace, name) = (approval.namespace.as_str(), approval.object.as_str());
    let read = api::object(&context.client, &info, namespace, name, Detail::Metadata);
    let Some(json) = within(read).await? else { return Ok(false) };
    let object = serde_json::from_str::<Object<'_>>(&json).ok();
    // Another object of that name is none of this approval's.
    Ok(object.is_none_or(|object| {
        object.is_terminating() && Uid::new(&object.metadata.uid) == approval.uid
    }))
}
