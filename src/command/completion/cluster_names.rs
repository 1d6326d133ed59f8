//! Reads names from the cluster for completions, within a short time limit.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::candidates::ClusterNames;
use crate::cluster::{Access, Buffers, Caller, Detail, ListQuery, ListReader, Next, read_names};
use crate::command::block_on;
use crate::objects::{KindInfo, KindNames, Kinds, Object};

/// The time limit of one completion.
const LIMIT: Duration = Duration::from_secs(1);

/// The time after which the command reads no further objects.
const READ_LIMIT: Duration = Duration::from_millis(600);

/// The cluster of this command line.
pub struct Cluster {
    /// `None`: the command reads files.
    access: Option<Access>,
    /// The namespace of the command line.
    namespace: Option<String>,
}

impl Cluster {
    pub fn from_words(typed: &[String]) -> Self {
        let all = |option: &str| -> Vec<String> {
            let is_short = !option.starts_with("--");
            let value = |(index, word): (usize, &String)| match word.strip_prefix(option)? {
                "" => typed.get(index + 1).cloned(),
                // `-nshop` is `-n shop`.
                rest if is_short => Some(rest.strip_prefix('=').unwrap_or(rest).to_owned()),
                rest => rest.strip_prefix('=').map(str::to_owned),
            };
            typed.iter().enumerate().filter_map(value).collect()
        };
        let given = |option: &str| all(option).into_iter().next();
        let access = given("--from").is_none().then(|| Access {
            kubeconfig: given("--kubeconfig").map(Into::into),
            context: given("--context"),
            impersonate: given("--as"),
            impersonate_groups: all("--as-group"),
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
            let kinds = Kinds::default();
            let info = kinds.info(kinds.namespace()?);
            list_names(&caller, info, "", Instant::now()).await
        });
        listed.unwrap_or_default()
    }

    fn objects(&self, kind: &str) -> Vec<String> {
        let (kind, namespace) = (kind.to_owned(), self.namespace.clone());
        let listed = self.ask(async move |caller| {
            let began = Instant::now();
            let names = read_names(&caller.client).await.ok()?;
            let info = names.find(&kind)?;
            let namespace = namespace.unwrap_or_else(|| caller.namespace.clone());
            let namespace = info.namespace_or_empty(&namespace);
            list_names(&caller, info, namespace, began).await
        });
        listed.unwrap_or_default()
    }
}

/// The names of the objects of a kind; only some of them if there are many.
async fn list_names(
    caller: &Caller,
    info: &KindInfo,
    namespace: &str,
    began: Instant,
) -> Option<Vec<String>> {
    let query = ListQuery { info, namespace, detail: Detail::Metadata, labels: "" };
    let mut list = ListReader::new(&caller.client, query, Buffers::new(1));
    let mut names = Vec::new();
    loop {
        match list.next().await.ok()? {
            Next::Object(json) if began.elapsed() < READ_LIMIT => {
                let object = serde_json::from_str::<Object<'_>>(json).ok();
                names.extend(object.map(|object| object.metadata.name.to_string()));
            }
            Next::Again => names.clear(),
            Next::Object(_) | Next::End => return Some(names),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_access_options_of_the_command_line() {
        let access_of = |line: &str| {
            let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Cluster::from_words(&typed).access
        };
        let access = access_of("why --context=far --kubeconfig here --as eve s").unwrap();
        assert_eq!(access.context.as_deref(), Some("far"));
        assert_eq!(access.kubeconfig.unwrap().to_str(), Some("here"));
        assert_eq!(access.impersonate.as_deref(), Some("eve"));
        let access = access_of("why --as eve --as-group=a --as-group b s").unwrap();
        assert_eq!(access.impersonate_groups, ["a", "b"]);
        let namespace_of = |line: &str| {
            let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Cluster::from_words(&typed).namespace
        };
        for line in ["why -n shop s", "why -nshop s", "why -n=shop s", "why --namespace=shop s"] {
            assert_eq!(namespace_of(line).as_deref(), Some("shop"), "{line}");
        }
        assert_eq!(namespace_of("why --now s"), None);
        assert!(access_of("why s").is_some_and(|access| access.context.is_none()));
        assert!(access_of("impact --from . s").is_none());
        // Kinds that every cluster has are known without one.
        let files = Cluster::from_words(&["--from".to_owned(), ".".to_owned()]);
        assert!(files.kinds().contains(&"secrets".to_owned()));
        assert!(files.namespaces().is_empty() && files.objects("secrets").is_empty());
    }
}
