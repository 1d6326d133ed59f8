//! The cluster of a soak: a control plane, two replicas of belay, namespaces, and users
//! with their rights.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::attacker::{Attacker, NAME};
use crate::call::Caller;
use crate::harness::rbac::user;
use crate::harness::{ControlPlane, Install, Installed, Options, Result, direct, lock};
use crate::people::Person;
use crate::plan::ROOMS;
use crate::policies::{self, in_force, lasting};

/// Two, as the chart has it.
pub const REPLICAS: usize = 2;

/// The username of belay.
pub const BELAY: &str = "system:serviceaccount:belay:belay";

const RIGHTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: soak}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: soak}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator, namespace: soak}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: soak}
provisioner: kubernetes.io/host-path
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: soak}
rules:
- apiGroups: ["", apps, batch, soak.dev]
  resources: ["*"]
  verbs: [get, list, create, update, patch, delete, deletecollection]
- apiGroups: [belay.dev]
  resources: [deletionapprovals]
  verbs: [create]
- apiGroups: ["*"]
  resources: ["*"]
  verbs: [approve-deletion]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: soak}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: soak}
subjects:
- {kind: Group, apiGroup: rbac.authorization.k8s.io, name: soakers}
- {kind: ServiceAccount, namespace: soak, name: robot}
- {kind: ServiceAccount, namespace: soak, name: operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: soak-tenant}
rules:
- apiGroups: ["", apps, batch, soak.dev]
  resources: ["*"]
  verbs: [get, list, create, update, patch, delete, deletecollection]
"#;

/// Everything that a soak needs.
pub struct Stage {
    /// The control plane.
    pub plane: ControlPlane,
    /// belay, shared with the thread that causes faults.
    pub belay: Arc<Mutex<Installed>>,
    /// The administrator.
    pub admin: Caller,
    /// The users.
    pub people: Vec<Person>,
    /// The operator.
    pub operator: Caller,
    /// The attacker.
    pub attacker: Attacker,
}

impl Stage {
    /// Sets it, and waits until the lasting policies are in force.
    pub async fn set(program: &Path) -> Result<Self> {
        let options = Options { nodes: 2, audit_bodies: true, ..Options::default() };
        let program = program.to_owned();
        let start = move || -> Result<(ControlPlane, Installed)> {
            let plane = ControlPlane::start_with(&options)?;
            let install = Install {
                serve: ["--debug-graph", "--drain=1"].map(str::to_owned).to_vec(),
                production_timing: true,
                ..Install::of_everything(REPLICAS)
            };
            let belay = install.on(&plane, &program)?;
            plane.apply(RIGHTS)?;
            for room in ROOMS {
                plane.create_namespace(room)?;
                // The rights of the attacker in a namespace. It has none elsewhere.
                let role = ("ClusterRole", "soak-tenant");
                plane.bind("soak-tenant", Some(room), role, &[user(NAME)])?;
            }
            Ok((plane, belay))
        };
        let (plane, belay) = tokio::task::spawn_blocking(start).await??;
        let admin = Caller::of(plane.kubeconfig()).await?;
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        admin.post(definitions, policies::crd("widgets", "Widget")).await.map_err(said)?;

        let mut people = Vec::new();
        for name in ["alice", "bob", "carol", "dave"] {
            let caller = Caller::of(&plane.user(name, Some("soakers"))?).await?;
            people.push(Person { name: name.to_owned(), caller });
        }
        let robot = Caller::of(&plane.account("soak", "robot")?).await?;
        let name = "system:serviceaccount:soak:robot".to_owned();
        people.push(Person { name, caller: robot });
        let operator = Caller::of(&plane.account("soak", "operator")?).await?;
        let clients = belay.addresses().into_iter();
        let clients = clients.map(|address| direct::client(&plane, address));
        let clients = clients.collect::<Result<_>>()?;
        let attacker = Attacker {
            caller: Caller::of(&plane.user(NAME, None)?).await?,
            admin: admin.clone(),
            replicas: clients,
        };
        Ok(Self { plane, belay: Arc::new(Mutex::new(belay)), admin, people, operator, attacker })
    }

    /// Writes the policies that last.
    pub async fn protect(&self) -> Result<()> {
        for policy in lasting() {
            self.admin.post(policies::URL, policy.clone()).await.map_err(said)?;
            in_force(&self.admin, policy["metadata"]["name"].as_str().unwrap_or_default()).await?;
        }
        Ok(())
    }

    /// belay, for one thread at a time.
    pub fn installed(&self) -> MutexGuard<'_, Installed> {
        lock(&self.belay)
    }
}

fn said(refusal: crate::call::Refusal) -> String {
    format!("{} {}", refusal.code, refusal.message)
}
