//! What a cluster says while somebody is typing: within a moment, or nothing.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};

use super::candidates::Known;
use crate::cluster::{Access, Caller, read_names};
use crate::command::block_on;
use crate::objects::{KindNames, Kinds};

/// Whoever types waits no longer.
const LIMIT: Duration = Duration::from_secs(1);

/// So many Namespaces are asked for: nobody reads more.
const MOST: u32 = 500;

/// The cluster that is meant by what has been typed; none: files are.
pub struct Cluster(Option<Access>);

impl Cluster {
    pub fn of(typed: &[String]) -> Self {
        let given = |option: &str| {
            typed.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(option)? {
                "" => typed.get(at + 1).cloned(),
                rest => rest.strip_prefix('=').map(str::to_owned),
            })
        };
        if given("--from").is_some() {
            return Self(None);
        }
        Self(Some(Access {
            kubeconfig: given("--kubeconfig").map(Into::into),
            context: given("--context"),
            impersonate: given("--as"),
        }))
    }

    /// What it answers, if it does so in time. A program that a kubeconfig names
    /// may ask a person something, and blocks the thread that runs it: so it has
    /// one of its own, which nobody waits for.
    fn ask<T, F>(&self, question: impl FnOnce(Caller) -> F + Send + 'static) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = Option<T>>,
    {
        let access = self.0.clone()?;
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let answer = block_on(async { question(Caller::connect(&access).await.ok()?).await });
            if let Ok(Some(answer)) = answer {
                // Nobody may be there any more to hear it.
                let _ = tell.send(answer);
            }
        });
        told.recv_timeout(LIMIT).ok()
    }
}

impl Known for Cluster {
    /// Those that it serves, or those that every cluster does.
    fn kinds(&self) -> Vec<String> {
        let served = self.ask(async |caller| read_names(&caller.client).await.ok());
        served.unwrap_or_else(|| KindNames::of_kinds(&Kinds::default(), &[])).unambiguous_names()
    }

    fn namespaces(&self) -> Vec<String> {
        let listed = self.ask(async |caller| {
            let api: Api<Namespace> = Api::all(caller.client.clone());
            let list = api.list_metadata(&ListParams::default().limit(MOST)).await.ok()?;
            Some(list.items.into_iter().filter_map(|one| one.metadata.name).collect())
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
            Cluster::of(&typed).0
        };
        let access = of("why --context=far --kubeconfig here --as eve s").unwrap();
        assert_eq!(access.context.as_deref(), Some("far"));
        assert_eq!(access.kubeconfig.unwrap().to_str(), Some("here"));
        assert_eq!(access.impersonate.as_deref(), Some("eve"));
        assert!(of("why s").is_some_and(|access| access.context.is_none()));
        assert!(of("impact --from . s").is_none());
        // Kinds that every cluster has are known without one.
        assert!(Cluster(None).kinds().contains(&"secrets".to_owned()));
        assert!(Cluster(None).namespaces().is_empty());
    }
}
