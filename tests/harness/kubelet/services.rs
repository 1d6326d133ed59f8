//! The kube-proxy: what the API server sends to a Service goes to the ready
//! endpoints that its EndpointSlices name.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};

use super::pod::Local;
use crate::harness::Result;
use crate::harness::proxy::EgressProxy;

/// Brings the proxy's routes up to date for the Services in the namespaces of
/// the Pods that run here.
pub(super) async fn route<'l>(
    client: &Client,
    proxy: &EgressProxy,
    pods: impl Iterator<Item = &'l Local>,
) -> Result<()> {
    let mut here: BTreeMap<&str, Vec<&Local>> = BTreeMap::new();
    for pod in pods.filter(|pod| !pod.container.ports.is_empty()) {
        here.entry(&pod.namespace).or_default().push(pod);
    }
    for (namespace, pods) in here {
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let slices = slices.list(&ListParams::default()).await?.items;
        for service in services.list(&ListParams::default()).await? {
            let name = service.metadata.name.as_deref().unwrap_or_default();
            let Some(spec) = &service.spec else { continue };
            let Some(ip) = spec.cluster_ip.as_deref().filter(|ip| *ip != "None") else { continue };
            let of_service: Vec<_> = slices.iter().filter(|slice| is_of(slice, name)).collect();
            for port in spec.ports.iter().flatten() {
                let backends: Vec<SocketAddr> = of_service
                    .iter()
                    .flat_map(|slice| backends(slice, port.name.as_deref(), &pods))
                    .collect();
                proxy.route(&format!("{ip}:{}", port.port), &backends);
            }
        }
    }
    Ok(())
}

fn is_of(slice: &EndpointSlice, service: &str) -> bool {
    let labels = slice.metadata.labels.as_ref();
    labels.and_then(|l| l.get("kubernetes.io/service-name")).is_some_and(|name| name == service)
}

fn backends(slice: &EndpointSlice, port: Option<&str>, pods: &[&Local]) -> Vec<SocketAddr> {
    let unnamed = |name: &Option<String>| name.as_deref().unwrap_or_default() == port.unwrap_or("");
    let target = slice.ports.iter().flatten().find(|target| unnamed(&target.name));
    let number = target.and_then(|target| u16::try_from(target.port?).ok());
    let ready = slice.endpoints.iter().filter(|endpoint| {
        endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
    });
    ready
        .flat_map(|endpoint| &endpoint.addresses)
        .filter_map(|address| {
            let pod = pods.iter().find(|pod| pod.address == *address)?;
            pod.container.ports.get(&number?).copied()
        })
        .collect()
}
