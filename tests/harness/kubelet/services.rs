//! The kube-proxy: it forwards connections to a Service to the ready endpoints in its
//! EndpointSlices.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::Watched;
use super::pod::Local;
use crate::harness::proxy::EgressProxy;

/// Updates the proxy's routes for the Services in the namespaces of the Pods that run here.
pub(super) fn route<'l>(
    watched: &Watched,
    proxy: &EgressProxy,
    pods: impl Iterator<Item = &'l Local>,
) {
    let mut pods_by_namespace: BTreeMap<&str, Vec<&Local>> = BTreeMap::new();
    for pod in pods.filter(|pod| !pod.container.ports.is_empty()) {
        pods_by_namespace.entry(&pod.namespace).or_default().push(pod);
    }
    let slices = watched.slices.state();
    for service in watched.services.state() {
        let (Some(namespace), Some(name)) = (&service.metadata.namespace, &service.metadata.name)
        else {
            continue;
        };
        let pods = pods_by_namespace.get(&**namespace);
        let (Some(pods), Some(spec)) = (pods, &service.spec) else { continue };
        let Some(ip) = spec.cluster_ip.as_deref().filter(|ip| *ip != "None") else { continue };
        let service_slices: Vec<_> =
            slices.iter().filter(|slice| is_of(slice, namespace, name)).collect();
        for port in spec.ports.iter().flatten() {
            let backends: Vec<SocketAddr> = service_slices
                .iter()
                .flat_map(|slice| backends(slice, port.name.as_deref(), pods))
                .collect();
            proxy.route(&format!("{ip}:{}", port.port), &backends);
        }
    }
}

fn is_of(slice: &EndpointSlice, namespace: &str, service: &str) -> bool {
    let labels = slice.metadata.labels.as_ref();
    slice.metadata.namespace.as_deref() == Some(namespace)
        && labels.and_then(|l| l.get("kubernetes.io/service-name")).is_some_and(|s| s == service)
}

fn backends(slice: &EndpointSlice, port: Option<&str>, pods: &[&Local]) -> Vec<SocketAddr> {
    // A port without a name is the only port.
    let is_port = |name: &Option<String>| name.as_deref().unwrap_or_default() == port.unwrap_or("");
    let target = slice.ports.iter().flatten().find(|target| is_port(&target.name));
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
