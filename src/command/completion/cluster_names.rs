//! Reads names from the cluster for completions, within a short time limit.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use super::candidates::ClusterNames;
use crate::cluster::{Access, Caller, read_names};
use crate::command::block_on;
use crate::objects::{KindNames, Kinds};

/// The time limit of one completion.
const LIMIT: Duration = Duration::from_secs(1);

/// The maximum number of names in a page.
const PAGE_SIZE: u32 = 500;

/// The time after which the command reads no further page.
const PAGE_LIMIT: Duration = Duration::from_millis(600);

/// The cluster of this command line.
pub struct Cluster {
    /// `None`: the command reads files.
    access: Option<Access>,
    /// The namespace of the command line.
    namespace: Option<String>,
}

impl Cluster {
    pub fn from_words(typed: &[String]) -> Self {
        let given = |option: &str| {
            typed.iter().enumerate().find_map(|(index, word)| match word.strip_prefix(option)? {
                "" => typed.get(index + 1).cloned(),
                rest => rest.strip_prefix('=').map(str::to_owned),
            })
        };
        let access = given("--from").is_none().then(|| Access {
            kubeconfig: given("--kubeconfig").map(Into::into),
            context: given("--context"),
            impersonate: given("--as"),
            // Without its groups, the user may see less.
            impersonate_groups: given("--as-group").into_iter().collect(),
        });
        Self { access, namespace: given("-n").or_else(|| given("--namespace")) }
    }

    /// Returns the answer if it arrives within the limit. A credential plugin of the kubeconfig
    /// may block its thread with a prompt, so the read runs on its own thread. No code waits for
    /// that thread to end.
    fn ask<T, F>(&self, question: impl FnOnce(Caller) -> F + Send + 'static) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = Option<T>>,
    {
        let access = self.access.clone()?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let answer = block_on(async { question(Caller::connect(&access).await.ok()?).await });
            if let Ok(Some(answer)) = answer {
                // The receiver may be closed.
                let _ = sender.send(answer);
            }
        });
        receiver.recv_timeout(LIMIT).ok()
    }
}

impl ClusterNames for Cluster {
    /// The kinds of the cluster, or the built-in kinds if the cluster does not answer.
    fn kinds(&self) -> Vec<String> {
        let served = self.ask(async |caller| read_names(&caller.client).await.ok());
        served.unwrap_or_else(|| KindNames::of_kinds(&Kinds::default(), &[])).unambiguous_names()
    }

    fn namespaces(&self) -> Vec<String> {
        let listed = self.ask(async |caller| {
            let api: Api<Namespace> = Api::all(caller.client.clone());
            let list = api.list_metadata(&ListParams::default().limit(PAGE_SIZE)).await.ok()?;
            Some(list.items.into_iter().filter_map(|one| one.metadata.name).collect())
        });
        listed.unwrap_or_default()
    }

    fn objects(&self, kind: &str) -> Vec<String> {
        let (kind, namespace) = (kind.to_owned(), self.namespace.clone());
        let listed = self.ask(async move |caller| {
            let began = Instant::now();
            let names = read_names(&caller.client).await.ok()?;
            let info = names.find(&kind)?;
            let gvk = GroupVersionKind::gvk(&info.group, info.versions.first()?, &info.kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, &info.resource);
            let namespace = namespace.unwrap_or_else(|| caller.namespace.clone());
            let api: Api<DynamicObject> = match info.namespaced {
                true => Api::namespaced_with(caller.client.clone(), &namespace, &resource),
                false => Api::all_with(caller.client.clone(), &resource),
            };
            let (mut objects, mut page) = (Vec::new(), ListParams::default().limit(PAGE_SIZE));
            loop {
                let list = api.list_metadata(&page).await.ok()?;
                objects.extend(list.items.into_iter().filter_map(|one| one.metadata.name));
                match list.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) if began.elapsed() < PAGE_LIMIT => {
                        page = page.continue_token(&token)
                    }
                    _ => return Some(objects),
                }
            }
        });
        listed.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_the_one_that_was_typed() {
        let of = |line: &str| {
            let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Cluster::from_words(&typed).access
        };
        let access = of("why --context=far --kubeconfig here --as eve s").unwrap();
        assert_eq!(access.context.as_deref(), Some("far"));
        assert_eq!(access.kubeconfig.unwrap().to_str(), Some("here"));
        assert_eq!(access.impersonate.as_deref(), Some("eve"));
        assert!(of("why s").is_some_and(|access| access.context.is_none()));
        assert!(of("impact --from . s").is_none());
        // Kinds that every cluster has are known without one.
        let files = Cluster::from_words(&["--from".to_owned(), ".".to_owned()]);
        assert!(files.kinds().contains(&"secrets".to_owned()));
        assert!(files.namespaces().is_empty() && files.objects("secrets").is_empty());
    }
}
