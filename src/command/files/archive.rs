//! A client that answers reads from files. With it, code for an API server works on a dump of a
//! cluster.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::objects::namespace as generated_namespace;
use super::{File, World, read_names, read_nonempty};
use crate::cluster::{KindsInFiles, failure, local_client};
use crate::command::CommandError;
use crate::command::selector::{self, SelectorError};
use crate::objects::{KindInfo, KindNames, Kinds, text_at};
use crate::policy::api::GROUP;

/// The objects from files.
pub struct Archive {
    kinds: Kinds,
    names: KindNames,
    objects: HashMap<(String, String), ObjectsByName>,
}

/// The objects of one kind, by namespace and name.
type ObjectsByName = BTreeMap<(String, String), Value>;

/// A response: the HTTP status code and the body.
type Response = (u16, Value);

impl Archive {
    /// Reads files. Objects without a namespace are in `default`.
    pub fn read(from: &[PathBuf]) -> Result<Self, CommandError> {
        Self::read_layers(&[&read_nonempty(from)?], "default")
    }

    /// Reads layers of files, like [`World::read_layers`].
    pub fn read_layers(layers: &[&[File]], default_namespace: &str) -> Result<Self, CommandError> {
        let mut objects: HashMap<_, ObjectsByName> = HashMap::new();
        let on_object = &mut |info: &KindInfo, object: &Value| {
            let kind = (info.group.clone(), info.resource.clone());
            let name = (text(object, "namespace"), text(object, "name"));
            objects.entry(kind).or_default().insert(name, object.clone());
        };
        let World { graph, .. } = World::read_layers(layers, default_namespace, on_object)?;
        let names = read_names(&graph.kinds, layers.iter().copied().flatten())?;
        Ok(Self { kinds: graph.kinds, names, objects })
    }

    /// The names of the kinds in the files.
    pub fn names(&self) -> &KindNames {
        &self.names
    }

    /// The kinds with objects, each with the namespaces of the objects.
    pub fn kinds_in_files(&self) -> KindsInFiles {
        let mut in_files = KindsInFiles::new();
        for (kind, all) in &self.objects {
            // The labels of a Namespace are unknown if no file contains the Namespace
            // itself.
            let described =
                all.iter().filter(|((_, name), object)| **object != generated_namespace(name));
            let namespaces: HashSet<String> =
                described.map(|((namespace, _), _)| namespace.clone()).collect();
            if !namespaces.is_empty() {
                in_files.insert(kind.clone(), namespaces);
            }
        }
        in_files
    }

    /// A client that answers from the archive.
    pub fn client(self) -> kube::Client {
        local_client(move |request| Some(self.answer(request.method(), request.uri())))
    }

    fn answer(&self, method: &Method, uri: &Uri) -> Response {
        if method != Method::GET {
            return failure(405, "files are read-only", ("", ""));
        }
        let segments: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        match segments[..] {
            ["api"] => self.discovery(|group| group.is_empty()),
            ["apis"] => self.discovery(|group| !group.is_empty()),
            ["api", _, ref rest @ ..] => self.objects("", rest, uri),
            ["apis", group, _, ref rest @ ..] => self.objects(group, rest, uri),
            _ => unknown_kind(),
        }
    }

    /// The served kinds. The kinds of belay are served only if the files contain one of their
    /// objects: a dump without such objects contains no information about protection.
    fn served(&self) -> impl Iterator<Item = &KindInfo> {
        let has_belay = self.objects.keys().any(|(group, _)| group == GROUP);
        let served = self.kinds.iter().filter(|(kind, _)| self.kinds.is_served(*kind));
        served.map(|(_, info)| info).filter(move |info| has_belay || info.group != GROUP)
    }

    /// The discovery document of some API groups.
    fn discovery(&self, is_requested: impl Fn(&str) -> bool) -> Response {
        let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
        for info in self.served().filter(|info| is_requested(&info.group)) {
            let resource = json!({
                "resource": info.resource,
                "responseKind": {"group": info.group, "version": "", "kind": info.kind},
                "scope": if info.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": info.kind.to_lowercase(),
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            });
            let versions = groups.entry(&info.group).or_default();
            for version in &info.versions {
                versions.entry(version).or_default().push(resource.clone());
            }
        }
        let items = groups.into_iter().map(|(group, versions)| {
            let versions = versions.into_iter().map(|(version, resources)| {
                json!({"version": version, "resources": resources, "freshness": "Current"})
            });
            json!({"metadata": {"name": group}, "versions": versions.collect::<Vec<_>>()})
        });
        let items: Vec<Value> = items.collect();
        let (version, kind) = ("apidiscovery.k8s.io/v2", "APIGroupDiscoveryList");
        (200, json!({"apiVersion": version, "kind": kind, "metadata": {}, "items": items}))
    }

    /// Answers a request for a list or for one object; `rest`: the path after the version.
    fn objects(&self, group: &str, rest: &[&str], uri: &Uri) -> Response {
        let (namespace, resource, name) = match *rest {
            ["namespaces", namespace, resource] => (Some(namespace), resource, None),
            ["namespaces", namespace, resource, name] => (Some(namespace), resource, Some(name)),
            [resource] => (None, resource, None),
            [resource, name] => (None, resource, Some(name)),
            _ => return unknown_kind(),
        };
        if !self.served().any(|info| info.group == group && info.resource == resource) {
            return unknown_kind();
        }
        let all = self.objects.get(&(group.to_owned(), resource.to_owned()));
        let namespace = namespace.map(unescape);
        match name {
            Some(name) => {
                let key = (namespace.unwrap_or_default(), unescape(name));
                match all.and_then(|all| all.get(&key)) {
                    Some(object) => (200, object.clone()),
                    None => failure(404, "the files have no such object", (resource, &key.1)),
                }
            }
            None => match Selection::parse(uri.query().unwrap_or_default()) {
                Ok(selection) => {
                    let in_namespace = |(other, _): &&(String, String)| {
                        namespace.as_ref().is_none_or(|namespace| other == namespace)
                    };
                    let all = all.into_iter().flatten().filter(|(key, _)| in_namespace(key));
                    let items: Vec<&Value> = all
                        .map(|(_, object)| object)
                        .filter(|object| selection.matches(object))
                        .collect();
                    let metadata = json!({"resourceVersion": "1"});
                    let (version, kind) = ("v1", "List");
                    let list = json!({"apiVersion": version, "kind": kind, "metadata": metadata,
                        "items": items});
                    (200, list)
                }
                Err(why) => failure(400, &why.to_string(), (resource, "")),
            },
        }
    }
}

/// The selected objects of a list.
#[derive(Default)]
struct Selection {
    labels: Vec<crate::graph::Requirement>,
    /// Paths to fields, and their required values.
    fields: Vec<(String, String)>,
}

impl Selection {
    fn parse(query: &str) -> Result<Self, SelectorError> {
        let mut selection = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "labelSelector" => selection.labels = selector::parse(&value)?,
                "fieldSelector" => {
                    let fields = value.split(',').filter_map(|field| field.split_once('='));
                    let pointer = |path: &str| format!("/{}", path.replace('.', "/"));
                    selection.fields =
                        fields.map(|(path, value)| (pointer(path), value.to_owned())).collect();
                }
                _ => {}
            }
        }
        Ok(selection)
    }

    fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|label| label.is_satisfied_by(|key| labels.get(key)?.as_str()))
            && self.fields.iter().all(|(pointer, value)| text_at(object, pointer) == value)
    }
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

/// Decodes the percent encoding of a path segment.
fn unescape(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

fn unknown_kind() -> Response {
    failure(404, "the files have no such kind", ("", ""))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DUMP: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: key, namespace: shop, labels: {app: web}}}
- {apiVersion: v1, kind: Secret, metadata: {name: key, namespace: other}}
- {apiVersion: v1, kind: Event, metadata: {name: e, namespace: shop},
   involvedObject: {uid: u-1}}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: 'system:node'}}
- {apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}}
";

    fn archive(dump: &str) -> Archive {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dump.yaml");
        std::fs::write(&file, dump).unwrap();
        Archive::read(&[file]).unwrap()
    }

    fn get(archive: &Archive, path: &str) -> Response {
        archive.answer(&Method::GET, &path.parse().unwrap())
    }

    #[test]
    fn requests_are_answered_as_by_an_api_server() {
        let archive = archive(DUMP);
        let count = |path: &str| get(&archive, path).1["items"].as_array().map(Vec::len);
        for (path, expected) in [
            ("/api/v1/secrets", 2),
            ("/api/v1/namespaces/shop/secrets?limit=500", 1),
            ("/api/v1/secrets?labelSelector=app%3Dweb", 1),
            ("/api/v1/secrets?labelSelector=%21app", 1),
            ("/api/v1/namespaces/shop/events?fieldSelector=involvedObject.uid%3Du-1", 1),
            ("/api/v1/namespaces/shop/events?fieldSelector=involvedObject.uid%3Du-2", 0),
            // A kind without objects in the files has no objects.
            ("/api/v1/pods", 0),
            ("/apis/example.com/v1/widgets", 1),
        ] {
            assert_eq!(count(path), Some(expected), "{path}");
        }
        for (path, code, kind) in [
            ("/api/v1/namespaces/shop/secrets/key", 200, ""),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode", 200, ""),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", 200, ""),
            ("/api/v1/namespaces/shop/secrets/none", 404, "secrets"),
            // The Namespace of an object exists.
            ("/api/v1/namespaces/shop", 200, ""),
            // `/apis` lists the kinds of all groups, so there are no documents of single groups.
            ("/apis/example.com", 404, ""),
            ("/apis/none.example.com", 404, ""),
            ("/apis/none.example.com/v1/gizmos", 404, ""),
            ("/apis/belay.dev/v1alpha1/deletionpolicies", 404, ""),
            ("/metrics", 404, ""),
        ] {
            let (answer, body) = get(&archive, path);
            assert_eq!(answer, code, "{path}");
            assert_eq!(body["details"]["kind"].as_str().unwrap_or_default(), kind, "{path}");
        }
        let (refused, _) = archive.answer(&Method::POST, &"/api/v1/secrets".parse().unwrap());
        assert_eq!(refused, 405);
    }

    #[test]
    fn kinds_in_files_have_the_namespaces_of_their_objects() {
        let archive = archive(DUMP);
        let kinds = archive.kinds_in_files();
        let namespaces = |group: &str, resource: &str| {
            let names = kinds.get(&(group.to_owned(), resource.to_owned()));
            names.map(|names| names.iter().map(String::as_str).collect::<BTreeSet<_>>())
        };
        assert_eq!(namespaces("", "secrets"), Some(BTreeSet::from(["other", "shop"])));
        assert_eq!((namespaces("", "pods"), namespaces("", "namespaces")), (None, None));
        assert_eq!(archive.names().find("po").map(|info| info.resource.as_str()), Some("pods"));
    }

    #[test]
    fn kinds_of_belay_are_served_if_the_files_contain_an_object_of_one() {
        let policy = "{apiVersion: belay.dev/v1alpha1, kind: DeletionPolicy, metadata: {name: p},
            spec: {targets: [{apiGroups: [''], resources: [secrets]}], protect: {always: {}}}}";
        let archive = archive(policy);
        let list = |plural: &str| get(&archive, &format!("/apis/belay.dev/v1alpha1/{plural}"));
        assert_eq!(list("deletionpolicies").1["items"][0]["metadata"]["name"], "p");
        assert_eq!(list("relations").0, 200);
    }
}
