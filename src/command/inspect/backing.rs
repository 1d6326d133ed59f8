//! Resources outside the cluster that are deleted with objects: data on volumes, and
//! addresses of load balancers. The graph does not contain them.

use std::collections::HashMap;

use serde_json::Value;

use super::affinity::NodeAffinity;
use crate::graph::Node;
use crate::objects::{KindInfo, list_at, text_at};

/// The kinds that are read as complete objects, because the graph omits the fields that this
/// module needs: group, plural name.
pub const READ_WHOLE: &[(&str, &str)] = &[
    ("", "persistentvolumes"),
    ("", "persistentvolumeclaims"),
    ("", "services"),
    (SNAPSHOTS, "volumesnapshots"),
];

/// The group of VolumeSnapshots.
pub const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

pub type NamespacedName = (String, String);

/// The resources outside the cluster that the read objects describe.
#[derive(Debug, Default)]
pub struct BackingResources {
    /// Volumes by name.
    pub volumes: HashMap<String, Volume>,
    /// The volume of each bound claim.
    pub claims: HashMap<NamespacedName, ClaimedVolume>,
    /// The snapshots of each claim.
    snapshots: HashMap<NamespacedName, ClaimSnapshots>,
    /// The addresses of each Service.
    pub addresses: HashMap<NamespacedName, Vec<String>>,
}

/// A PersistentVolume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volume {
    /// Whether its reclaim policy is Delete: the data is deleted with the claim.
    pub is_deleted: bool,
    /// Its capacity, as a quantity such as `40Gi`.
    pub size: String,
    /// The claim in `spec.claimRef`.
    pub claim: Option<NamespacedName>,
    /// The nodes that can use it; `None`: all.
    pub affinity: Option<NodeAffinity>,
}

/// The volume of a claim, as the claim names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimedVolume {
    pub name: String,
    /// Its size, as a quantity such as `40Gi`.
    pub size: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimSnapshots {
    /// The newest snapshot that is ready to use.
    pub newest: Option<VolumeSnapshot>,
    /// The number of snapshots without usable data: not ready, failed or Terminating.
    pub not_ready: usize,
}

/// A VolumeSnapshot that is ready to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// Its name; its namespace is that of the claim.
    pub name: String,
    /// `status.creationTime`: when the storage system took the snapshot.
    pub time: String,
}

impl BackingResources {
    /// Records the resources that an object describes.
    pub fn record(&mut self, info: &KindInfo, object: &Value) {
        let text = |pointer: &str| text_at(object, pointer).to_owned();
        let key = (text("/metadata/namespace"), text("/metadata/name"));
        match info.group_resource() {
            ("", "persistentvolumes") => {
                let claim = (text("/spec/claimRef/namespace"), text("/spec/claimRef/name"));
                let volume = Volume {
                    is_deleted: text("/spec/persistentVolumeReclaimPolicy") == "Delete",
                    size: text("/spec/capacity/storage"),
                    claim: (!claim.1.is_empty()).then_some(claim),
                    affinity: NodeAffinity::of_volume(object),
                };
                self.volumes.insert(key.1, volume);
            }
            ("", "persistentvolumeclaims") => {
                let name = text("/spec/volumeName");
                let size = text("/status/capacity/storage");
                if !name.is_empty() {
                    self.claims.insert(key, ClaimedVolume { name, size });
                }
            }
            ("", "services") => {
                let ingress = list_at(object, "/status/loadBalancer/ingress").iter();
                let addresses = ingress.filter_map(|entry| {
                    let text = |field| entry.get(field).and_then(Value::as_str);
                    text("ip").or_else(|| text("hostname")).map(str::to_owned)
                });
                let addresses: Vec<String> = addresses.collect();
                if !addresses.is_empty() {
                    self.addresses.insert(key, addresses);
                }
            }
            (SNAPSHOTS, "volumesnapshots") => {
                let claim = (key.0.clone(), text("/spec/source/persistentVolumeClaimName"));
                let snapshots = self.snapshots.entry(claim).or_default();
                // The creation of the object does not prove that data was copied. Only the
                // snapshot controller writes the status.
                let time = text("/status/creationTime");
                let is_ready = object.pointer("/status/readyToUse") == Some(&Value::Bool(true));
                let is_terminating = object.pointer("/metadata/deletionTimestamp").is_some();
                if !is_ready || is_terminating || time.is_empty() {
                    snapshots.not_ready += 1;
                // RFC 3339 in UTC sorts as text.
                } else if snapshots.newest.as_ref().is_none_or(|newest| newest.time < time) {
                    snapshots.newest = Some(VolumeSnapshot { name: key.1, time });
                }
            }
            _ => {}
        }
    }

    /// Whether this user of a StorageClass does not need it: a volume, or a claim with a volume.
    pub fn outlives_class(&self, user: Node<'_>) -> bool {
        match user.info().group_resource() {
            ("", "persistentvolumes") => true,
            ("", "persistentvolumeclaims") => {
                self.claims.contains_key(&(user.namespace().to_owned(), user.name().to_owned()))
            }
            _ => false,
        }
    }

    /// The VolumeSnapshots of a claim; `None` if there are none.
    pub fn snapshots(&self, claim: &NamespacedName) -> Option<&ClaimSnapshots> {
        self.snapshots.get(claim)
    }

    /// The volume of a claim, unless the volume is bound to another claim.
    pub fn volume_of(&self, claim: &NamespacedName) -> Option<(&str, &Volume)> {
        let (name, volume) = self.volumes.get_key_value(&self.claims.get(claim)?.name)?;
        let is_bound = volume.claim.as_ref().is_none_or(|bound| bound == claim);
        is_bound.then_some((name.as_str(), volume))
    }
}

/// Parses a quantity in bytes (`40Gi`, `1.5T`, `500M`); `None` if it is invalid.
pub fn parse_bytes(quantity: &str) -> Option<f64> {
    let is_unit = |c: char| !c.is_ascii_digit() && c != '.';
    let (number, unit) = quantity.split_at(quantity.find(is_unit).unwrap_or(quantity.len()));
    let factor = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "Pi" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

/// Formats a number of bytes as a quantity, such as `40Gi`.
pub fn format_bytes(bytes: f64) -> String {
    let (mut size, mut unit) = (bytes, "");
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi"] {
        // 1536Mi is easier to read than 1.5Gi.
        if size < 1024.0 || (size < 10240.0 && size % 1024.0 != 0.0) {
            break;
        }
        size /= 1024.0;
        unit = next;
    }
    let rounded = (size * 10.0).round() / 10.0;
    format!("{rounded}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Kinds;
    use serde_json::json;

    #[test]
    fn h124_only_a_snapshot_that_is_ready_to_use_counts() {
        let kind = Kinds::custom(SNAPSHOTS, "v1", "VolumeSnapshot", "volumesnapshots", true);
        let claim: NamespacedName = ("shop".to_owned(), "data".to_owned());
        let object = |name: &str, status: Value| {
            json!({"metadata": {"namespace": "shop", "name": name,
                    "creationTimestamp": "2026-01-09T00:00:00Z"},
                "spec": {"source": {"persistentVolumeClaimName": "data"}}, "status": status})
        };
        let ready = |name: &str, time: &str| {
            object(name, json!({"readyToUse": true, "creationTime": time}))
        };
        let mut terminating = ready("ending", "2026-01-08T00:00:00Z");
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-09T00:00:00Z");
        let unusable = [
            object("without-a-status", Value::Null),
            object("with-an-error", json!({"readyToUse": false, "error": {"message": "no class"}})),
            object("copying", json!({"creationTime": "2026-01-08T00:00:00Z"})),
            object("without-a-time", json!({"readyToUse": true})),
            object("text", json!({"readyToUse": "true", "creationTime": "2026-01-08T00:00:00Z"})),
            terminating,
        ];

        let mut backing = BackingResources::default();
        assert_eq!(backing.snapshots(&claim), None);
        for object in &unusable {
            backing.record(&kind, object);
        }
        let all_not_ready = ClaimSnapshots { newest: None, not_ready: 6 };
        assert_eq!(backing.snapshots(&claim), Some(&all_not_ready));

        // Objects that are not ready do not hide snapshots that are ready.
        let taken = ["2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-02T00:00:00Z"];
        for (name, time) in ["first", "third", "second"].into_iter().zip(taken) {
            backing.record(&kind, &ready(name, time));
        }
        backing.record(&kind, &unusable[0]);
        let newest = VolumeSnapshot { name: "third".to_owned(), time: taken[1].to_owned() };
        let found = ClaimSnapshots { newest: Some(newest), not_ready: 7 };
        assert_eq!(backing.snapshots(&claim), Some(&found));
    }

    #[test]
    fn quantities_are_parsed_and_formatted() {
        for (quantity, formatted) in [
            ("40Gi", "40Gi"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("512", "512"),
            ("1.5Gi", "1536Mi"),
            ("100Ti", "100Ti"),
        ] {
            let parsed = parse_bytes(quantity).map(format_bytes);
            assert_eq!(parsed.as_deref(), Some(formatted), "{quantity}");
        }
        assert_eq!(format_bytes(parse_bytes("40Gi").unwrap() * 3.0), "120Gi");
        assert_eq!((parse_bytes("many"), parse_bytes("4Xi")), (None, None));
    }
}
