//! The Services of webhooks: whether they exist and have ready endpoints.

use std::collections::{BTreeSet, HashMap};

use futures_util::StreamExt as _;
use serde_json::Value;

use super::list_reader::{ListReader, name};
use super::webhooks::{LabelsByNamespace, Service, ServiceProblem, Webhook, WebhookAddress};
use super::{CONCURRENT_READS, TerminatingObject};
use crate::cluster::api;
use crate::cluster::api::Detail;
use crate::objects::{CRDS, list_at, read_tolerant};

/// A CRD whose conversion webhook does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadConversion {
    /// The name of the CRD.
    pub definition: String,
    pub problem: ServiceProblem,
}

impl ListReader<'_> {
    /// Returns the webhooks, and the labels of Namespaces if a matching webhook selects
    /// by them; `None` if not all webhooks could be read.
    pub(super) async fn webhooks(
        &self,
        found: &[&TerminatingObject],
    ) -> Option<(Vec<Webhook>, LabelsByNamespace)> {
        const GROUP: &str = "admissionregistration.k8s.io";
        let (validating, mutating) = tokio::join!(
            self.all(GROUP, "validatingwebhookconfigurations", ""),
            self.all(GROUP, "mutatingwebhookconfigurations", ""),
        );
        let kinds = [
            ("validatingwebhookconfiguration", validating?),
            ("mutatingwebhookconfiguration", mutating?),
        ];
        let configurations =
            kinds.iter().flat_map(|(kind, all)| all.iter().map(move |c| (*kind, c)));
        let hooks = configurations.flat_map(|(kind, configuration)| {
            let hooks = list_at(configuration, "/webhooks").iter();
            hooks.map(move |hook| Webhook::read(kind, configuration, hook))
        });
        let mut hooks: Vec<Webhook> = hooks.collect();
        let mut silent =
            self.problems(hooks.iter().filter_map(|hook| hook.address.service())).await;
        for hook in &mut hooks {
            let problem = hook.address.service().and_then(|service| silent.get_mut(service));
            hook.problem = problem.map(|problem| problem.clone());
        }
        let unknown_labels = LabelsByNamespace::new();
        let selects_namespaces = |hook: &Webhook| {
            !hook.namespaces.is_empty()
                && found.iter().any(|found| hook.is_called_for(found, &unknown_labels))
        };
        let namespaces = match hooks.iter().any(selects_namespaces) {
            true => self.all("", "namespaces", "").await.unwrap_or_default(),
            false => Vec::new(),
        };
        let labels = |namespace: &Value| {
            let labels = namespace.pointer("/metadata/labels").cloned().unwrap_or_default();
            Some((name(namespace)?.to_owned(), labels))
        };
        Some((hooks, namespaces.iter().filter_map(labels).collect()))
    }

    pub(super) async fn conversions(&self) -> Vec<DeadConversion> {
        let crds = self.all(CRDS.0, CRDS.1, "").await;
        let crds = crds.unwrap_or_default();
        let converted = crds.iter().filter_map(|crd| {
            let address =
                WebhookAddress::parse(crd.pointer("/spec/conversion/webhook/clientConfig")?);
            Some((address.service()?.clone(), name(crd)?))
        });
        let converted: Vec<(Service, &str)> = converted.collect();
        let silent = self.problems(converted.iter().map(|(service, _)| service)).await;
        let dead = converted.into_iter().filter_map(|(service, name)| {
            let problem = silent.get(&service)?.clone();
            Some(DeadConversion { definition: name.to_owned(), problem })
        });
        dead.collect()
    }

    /// The Services with a known problem.
    async fn problems(
        &self,
        services: impl Iterator<Item = &Service>,
    ) -> HashMap<Service, ServiceProblem> {
        let services: BTreeSet<Service> = services.cloned().collect();
        let reads = services.into_iter().map(|service| async move {
            let problem = self.problem(&service).await?;
            Some((service, problem))
        });
        let reads = futures_util::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        reads.filter_map(std::future::ready).collect().await
    }

    /// The problem of a Service; `None` if none is known.
    async fn problem(&self, (namespace, name): &Service) -> Option<ServiceProblem> {
        let info = self.readable_kind("", "services", namespace)?;
        let client = &self.snapshot.context.client;
        let json = match api::object(client, &info, namespace, name, Detail::Whole).await {
            Ok(Some(json)) => json,
            Ok(None) => {
                let why = format!("there is no Service {namespace}/{name}");
                return Some(ServiceProblem { missing: true, why });
            }
            Err(error) => {
                self.add_unread("services".to_owned(), error);
                return None;
            }
        };
        let service = read_tolerant(&json).ok()?;
        // belay knows nothing about a Service without a selector: another client writes its
        // endpoints.
        service.pointer("/spec/selector").filter(|selector| selector.is_object())?;
        let slices = self.readable_kind("discovery.k8s.io", "endpointslices", namespace)?;
        let label = format!("kubernetes.io/service-name={name}");
        let slices = self.labelled(&slices, namespace, &label).await?;
        let mut endpoints = slices.iter().flat_map(|slice| list_at(slice, "/endpoints"));
        let ready = |endpoint: &Value| endpoint.pointer("/conditions/ready") != Some(&false.into());
        let is_silent = !slices.is_empty() && !endpoints.any(ready);
        let why = format!("no Pod behind the Service {namespace}/{name} is ready");
        is_silent.then_some(ServiceProblem { missing: false, why })
    }
}
