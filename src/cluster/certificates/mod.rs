//! The serving certificate of the webhook, and the CA certificates that the API server
//! trusts.
//!
//! ```text
//!             watch                 ┌─► Serving (every replica, no restart)
//!   Secret ───────────► every replica ─► signals.bundle ─► the registration
//!     ▲                             └─► a Lease: "this is what I serve"
//!     │ one step at a time                     │
//!   the leader ◄── rotation::step ◄────────────┴── signals.registered
//! ```
//!
//! All state is in the Secret, so a new leader continues where the last one stopped.

mod bundle_file;
mod content;
mod driver;
mod replicas;
mod rotation;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

pub(in crate::cluster) use self::replicas::{is_running, label_selector as replica_selector};
use super::context::{Certificates, Context, send_changed};
use crate::certs::Serving;

/// The time limit of one request.
const LIMIT: Duration = Duration::from_secs(5);
/// The time limit of the last request at shutdown.
const LAST_REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// Updates `serving` and `signals.bundle`, and the Secret while this replica is the
/// leader, until belay shuts down. If certificates come from another source, only the
/// bundle is updated.
///
/// This call creates the readiness condition "certificate" before the future is polled.
pub fn run(context: Context, serving: Arc<Serving>) -> impl Future<Output = ()> + Send {
    let timing = context.settings.timing.certificates;
    let own = match context.settings.certificates.clone() {
        Certificates::Own { names, days } => Ok(driver::OwnSettings { names, days, timing }),
        Certificates::Files { authorities } => Err(authorities),
    };
    let condition = own.is_ok().then(|| context.readiness.condition("certificate"));
    async move {
        match (own, condition) {
            (Ok(own), Some(condition)) => {
                let (serial, reported) = watch::channel(None);
                let replicas = replicas::Replicas::new(&context);
                let driver =
                    driver::Driver::new(&context, &replicas, own, serving, condition, serial);
                tokio::select! {
                    () = driver.run() => {}
                    () = replicas.report(reported) => {}
                    () = replicas.sweep() => {}
                    () = context.signals.ended() => {}
                }
                replicas.leave().await;
            }
            (Err(Some(path)), _) => {
                let publish = bundle_file::publish_bundle_file(&context, &path);
                context.signals.until_end(publish).await;
            }
            _ => context.signals.ended().await,
        }
    }
}

/// Publishes the CA certificates if they have changed.
fn publish(context: &Context, bundle: String) {
    send_changed(&context.signals.bundle, Some(bundle.into()));
}
