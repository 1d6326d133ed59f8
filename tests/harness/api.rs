//! Requests of one user to the API server, made in this process, because a kubectl takes 80
//! ms of a core for each.

use std::fmt::Display;
use std::path::Path;
use std::pin::pin;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use ::belay::cluster::read_names;
use ::belay::objects::{KindInfo, KindNames};
use futures_util::StreamExt as _;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, TypeMeta};
use kube::runtime::watcher::watch_object;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Result;
use super::kubectl::Output;
use super::shared::lock;

/// The runtime of the requests of all tests.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if RUNTIME.get().is_none() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let _ = RUNTIME.set(builder.worker_threads(2).enable_all().build()?);
    }
    RUNTIME.get().ok_or_else(|| "no runtime".into())
}

/// Waits for a request, on another thread, because the caller may be asynchronous itself.
fn wait_for<T: Send>(request: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let runtime = runtime()?;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| runtime.block_on(request));
        waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The API server with the rights of one user.
pub struct Api {
    client: kube::Client,
    /// The names of the kinds, as of the last discovery.
    names: Mutex<KindNames>,
}

/// An answer of the API server: its code, its body, its warnings.
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Api {
    /// A client with this kubeconfig.
    pub fn of(kubeconfig: &Path) -> Result<Self> {
        let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
        let client = wait_for(async {
            let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await?;
            Ok(kube::Client::try_from(config)?)
        })?;
        Ok(Self { client, names: Mutex::default() })
    }

    /// The object, if it exists. `object` is written as for kubectl: `pvc/data`.
    pub fn get(&self, object: &str, namespace: &str) -> Result<Option<Value>> {
        let (kind, name) = self.resolve(object)?;
        let answer = self.send(http::Method::GET, &path(&kind, namespace, name), None)?;
        match answer.code {
            200 => Ok(Some(answer.body)),
            404 => Ok(None),
            _ => Err(answer.error().into()),
        }
    }

    /// The objects of a kind in a namespace, or in all namespaces if it is empty. `labels` is a
    /// selector, as for kubectl after `-l`.
    pub fn list(&self, kind: &str, namespace: &str, labels: &str) -> Result<Vec<Value>> {
        let kind = format!("{kind}/");
        let (kind, _) = self.resolve(&kind)?;
        let objects = self.objects(&kind, namespace);
        let labels = ListParams::default().labels(labels);
        let list = wait_for(async { Ok(objects.list(&labels).await?) })?;
        let types = TypeMeta { api_version: api_version(&kind), kind: kind.kind };
        let complete = |mut object: DynamicObject| {
            // In a list, the API server leaves the types out. kubectl hides managedFields.
            object.types = Some(types.clone());
            object.metadata.managed_fields = None;
            serde_json::to_value(object)
        };
        Ok(list.items.into_iter().map(complete).collect::<std::result::Result<_, _>>()?)
    }

    /// Fields of each object of a kind, as [`Api::field`] prints them.
    pub fn fields(
        &self,
        kind: &str,
        namespace: &str,
        labels: &str,
        paths: &str,
    ) -> Result<Vec<String>> {
        let objects = self.list(kind, namespace, labels)?;
        objects.iter().map(|object| printed(object, paths)).collect()
    }

    /// Whether the API server reports that it is ready.
    pub fn is_ready(&self) -> Result<()> {
        match self.send(http::Method::GET, "/readyz", None)? {
            Answer { code: 200, .. } => Ok(()),
            Answer { code, .. } => Err(format!("readyz: {code}").into()),
        }
    }

    /// Whether a user may do this with a kind (`deployments.apps`), or with one object
    /// (`pods/web-0`), in a namespace.
    pub fn may(&self, user: &str, verb: &str, object: &str, namespace: &str) -> Result<()> {
        let (kind, name) = object.split_once('/').unwrap_or((object, ""));
        let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": {"verb": verb, "group": group,
                "resource": resource, "name": name, "namespace": namespace}},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        match self.send(http::Method::POST, path, Some(&review))?.body["status"]["allowed"] {
            Value::Bool(true) => Ok(()),
            _ => Err(format!("{user} may not {verb} {object}").into()),
        }
    }

    /// A token of a service account.
    pub fn token(&self, namespace: &str, account: &str) -> Result<String> {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": 24 * 3600}});
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let answer = self.send(http::Method::POST, &path, Some(&request))?;
        let token = answer.body["status"]["token"].as_str().map(str::to_owned);
        token.ok_or_else(|| answer.error().into())
    }

    /// Fields of an object that exists, as kubectl prints them: text without quotes, other values
    /// as JSON, and nothing for a missing field. `paths` are paths such as
    /// `.metadata.ownerReferences[0].name`. Spaces separate paths, and also the printed fields.
    pub fn field(&self, object: &str, namespace: &str, paths: &str) -> Result<String> {
        let value = self.get(object, namespace)?;
        printed(&value.ok_or_else(|| format!("NotFound: {object} in {namespace}"))?, paths)
    }

    /// Waits until fields, as [`Api::field`] prints them, meet a condition. Returns them.
    pub fn wait_field(
        &self,
        object: (&str, &str),
        limit: Duration,
        paths: &str,
        mut is_met: impl FnMut(&str) -> bool + Send,
    ) -> Result<String> {
        self.wait(object, limit, |found| {
            let text = printed(found.ok_or("it does not exist")?, paths)?;
            if is_met(&text) { Ok(text) } else { Err(text.into()) }
        })
    }

    /// Waits until an object does not exist.
    pub fn wait_gone(&self, object: (&str, &str), limit: Duration) -> Result<()> {
        self.wait(object, limit, |found| match found {
            None => Ok(()),
            Some(object) => Err(object.to_string().into()),
        })
    }

    /// Applies the objects of a manifest (a value or YAML) with server-side apply. Stops after the
    /// first refused object. Returns what kubectl would print.
    pub fn apply(&self, manifest: &(impl Display + ?Sized), namespace: &str) -> Result<Output> {
        let mut printed = Output::default();
        for object in serde_saphyr::from_multiple::<Value>(&manifest.to_string())? {
            if object.is_null() {
                continue;
            }
            let named = named(&object);
            let (kind, name) = self.resolve(&named)?;
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
            let query = "fieldManager=kubectl&force=true&fieldValidation=Strict";
            let path = format!("{}?{query}", path(&kind, namespace, name));
            let content = "application/apply-patch+yaml";
            let answer = self.send_as(content, http::Method::PATCH, &path, Some(&object))?;
            answer.print(&mut printed);
            if printed.code != 0 {
                break;
            }
        }
        Ok(printed)
    }

    /// Creates an object from JSON. Returns what kubectl would print.
    pub fn create(&self, object: &Value, namespace: &str) -> Result<Output> {
        Ok(self.post(object, namespace, "?fieldValidation=Strict")?.output())
    }

    /// Changes an object by a JSON patch if `patch` is a list, otherwise by a merge patch.
    /// `object` may end with `/status`. Returns what kubectl would print.
    pub fn patch(&self, object: &str, namespace: &str, patch: &Value) -> Result<Output> {
        let form = if patch.is_array() { "json" } else { "merge" };
        let content = format!("application/{form}-patch+json");
        let (kind, name) = self.resolve(object)?;
        let path = path(&kind, namespace, name);
        Ok(self.send_as(&content, http::Method::PATCH, &path, Some(patch))?.output())
    }

    /// The object that a create would store, or the Status of the refusal.
    pub fn would_create(
        &self,
        object: &Value,
        namespace: &str,
    ) -> Result<std::result::Result<Value, Value>> {
        let answer = self.post(object, namespace, "?dryRun=All&fieldValidation=Strict")?;
        Ok(if answer.code < 300 { Ok(answer.body) } else { Err(answer.body) })
    }

    /// Sends a DELETE as a dry run. Returns the Status if the DELETE is refused, `None` if not.
    pub fn would_refuse(&self, object: &str, namespace: &str) -> Result<Option<Value>> {
        let (kind, name) = self.resolve(object)?;
        let path = format!("{}?dryRun=All", path(&kind, namespace, name));
        let answer = self.send(http::Method::DELETE, &path, None)?;
        Ok((answer.code >= 300).then_some(answer.body))
    }

    fn post(&self, object: &Value, namespace: &str, query: &str) -> Result<Answer> {
        let (kind, _) = self.resolve(&named(object))?;
        let path = format!("{}{query}", path(&kind, namespace, ""));
        self.send(http::Method::POST, &path, Some(object))
    }

    /// Deletes objects as `kubectl delete --wait=false` does, with these arguments:
    /// `KIND/NAME…` or `KIND NAME…`, `--dry-run=server`, `--cascade=…`, `--grace-period=0`.
    /// Returns what kubectl would print, without the list of deleted objects.
    pub fn delete(&self, args: &[&str], namespace: &str) -> Result<Output> {
        let mut options = json!({"propagationPolicy": "Background"});
        let (flags, objects): (Vec<&str>, Vec<&str>) =
            args.iter().partition(|arg| arg.starts_with("--"));
        for flag in flags {
            match flag {
                "--dry-run=server" => options["dryRun"] = json!(["All"]),
                "--cascade=background" | "--force" => {}
                "--cascade=foreground" => options["propagationPolicy"] = json!("Foreground"),
                "--cascade=orphan" => options["propagationPolicy"] = json!("Orphan"),
                "--grace-period=0" => options["gracePeriodSeconds"] = json!(0),
                _ => return Err(format!("{flag}: only kubectl understands it").into()),
            }
        }
        let mut printed = Output::default();
        let objects: Vec<String> = match *objects {
            [kind, ref names @ ..] if !kind.contains('/') => {
                names.iter().map(|name| format!("{kind}/{name}")).collect()
            }
            _ => objects.iter().map(ToString::to_string).collect(),
        };
        for object in objects {
            let (kind, name) = self.resolve(&object)?;
            let path = path(&kind, namespace, name);
            self.send(http::Method::DELETE, &path, Some(&options))?.print(&mut printed);
        }
        Ok(printed)
    }

    /// Watches an object until `judge` has a result. After `limit`, returns the last error.
    pub fn wait<T: Send>(
        &self,
        (object, namespace): (&str, &str),
        limit: Duration,
        mut judge: impl FnMut(Option<&Value>) -> Result<T> + Send,
    ) -> Result<T> {
        let (kind, name) = self.resolve(object)?;
        let mut last = "it was not read".to_owned();
        let watched = async {
            let mut seen = pin!(watch_object(self.objects(&kind, namespace), name));
            while let Some(next) = seen.next().await {
                let value = match next {
                    Ok(object) => object.map(serde_json::to_value).transpose(),
                    Err(error) => {
                        last = error.to_string();
                        continue;
                    }
                };
                match value.map_err(Into::into).and_then(|value| judge(value.as_ref())) {
                    Ok(result) => return Some(result),
                    Err(error) => last = error.to_string(),
                }
            }
            None
        };
        let found = wait_for(async { Ok(tokio::time::timeout(limit, watched).await) })?;
        match found {
            Ok(Some(result)) => Ok(result),
            _ => Err(format!("{object} in {namespace}: not within {limit:?}: {last}").into()),
        }
    }

    fn objects(&self, kind: &KindInfo, namespace: &str) -> kube::Api<DynamicObject> {
        let resource = ApiResource {
            group: kind.group.clone(),
            version: kind.versions[0].clone(),
            api_version: api_version(kind),
            kind: kind.kind.clone(),
            plural: kind.resource.clone(),
        };
        match kind.namespaced && !namespace.is_empty() {
            true => kube::Api::namespaced_with(self.client.clone(), namespace, &resource),
            false => kube::Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Whether discovery serves this kind: `Gizmo.v1.example.com`.
    pub fn finds_kind(&self, word: &str) -> Result<()> {
        self.resolve(&format!("{word}/")).map(drop)
    }

    fn resolve<'o>(&self, object: &'o str) -> Result<(KindInfo, &'o str)> {
        let (word, name) = object.split_once('/').ok_or("expected KIND/NAME")?;
        let mut known = lock(&self.names);
        if known.find(word).is_none() {
            *known = wait_for(async { Ok(read_names(&self.client).await?) })?;
        }
        let kind = known.find(word).ok_or_else(|| format!("there is no kind {word}"))?;
        Ok((kind.clone(), name))
    }

    /// Creates an object of a built-in kind from its protobuf (POST), or replaces it (PUT).
    pub fn write_protobuf(&self, method: http::Method, path: &str, object: Vec<u8>) -> Result<()> {
        let content = "application/vnd.kubernetes.protobuf";
        match self.send_bytes(content, method, path, object)? {
            Answer { code: 200 | 201, .. } => Ok(()),
            answer => Err(answer.error().into()),
        }
    }

    fn send(&self, method: http::Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.send_as("application/json", method, path, body)
    }

    fn send_as(
        &self,
        content: &str,
        method: http::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        self.send_bytes(content, method, path, body)
    }

    fn send_bytes(
        &self,
        content: &str,
        method: http::Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Answer> {
        let request = http::Request::builder().method(method).uri(path);
        let request =
            request.header("content-type", content).body(kube::client::Body::from(body))?;
        wait_for(async {
            let response = self.client.send(request).await?;
            let code = response.status().as_u16();
            let warnings = response.headers().get_all("warning").iter();
            let warnings = warnings.filter_map(|header| header.to_str().ok());
            // 299 - "text"
            let warnings = warnings.filter_map(|text| text.split_once('"')?.1.strip_suffix('"'));
            let warnings = warnings.map(|text| text.replace("\\\"", "\"")).collect();
            let bytes = response.into_body().collect_bytes().await?;
            // `/readyz` answers in plain text.
            let body = serde_json::from_slice(&bytes).unwrap_or_default();
            Ok(Answer { code, body, warnings })
        })
    }
}

impl Answer {
    /// Adds what kubectl would print for this answer.
    fn print(&self, printed: &mut Output) {
        for warning in &self.warnings {
            printed.stderr.push_str(&format!("Warning: {warning}\n"));
        }
        if self.code >= 300 {
            printed.stderr.push_str(&self.error());
            printed.code = 1;
        }
    }

    /// What kubectl would print for this answer.
    fn output(&self) -> Output {
        let mut printed = Output::default();
        self.print(&mut printed);
        printed
    }

    /// What kubectl prints for an error.
    fn error(&self) -> String {
        let text = |field: &str| self.body[field].as_str().unwrap_or_default();
        format!("Error from server ({}): {}\n", text("reason"), text("message"))
    }
}

/// `KIND.VERSION.GROUP/NAME` of an object.
fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    match text(&object["apiVersion"]).split_once('/') {
        Some((group, version)) => format!("{kind}.{version}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

/// Whether a condition of an object is True.
pub fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
}

/// The values at these paths, as kubectl prints them. A null is an empty text.
fn printed(value: &Value, paths: &str) -> Result<String> {
    let found = paths.split(' ').map(|path| select(value, path)).collect::<Result<Vec<_>>>()?;
    let print = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let texts = found.iter().map(|values| values.iter().map(|v| print(v)).collect::<Vec<_>>());
    Ok(texts.map(|texts| texts.join(" ")).collect::<Vec<_>>().join(" "))
}

/// The values at a path as in kubectl: `.a.b`, `[0]`, `[*]`, `[?(@.type=="Ready")]`. A field that
/// does not exist is null. A dot within a name is written as `\\.`.
fn select<'v>(value: &'v Value, path: &str) -> Result<Vec<&'v Value>> {
    if path.is_empty() {
        return Ok(vec![value]);
    }
    let unknown = || format!("{path}: only kubectl understands such a path");
    let (found, rest): (Vec<&Value>, &str) = if let Some(path) = path.strip_prefix('[') {
        let (index, rest) = path.split_once(']').ok_or_else(unknown)?;
        let all = value.as_array().map_or(&[][..], Vec::as_slice);
        let condition = index.strip_prefix("?(@.").and_then(|text| text.strip_suffix("\")"));
        let found = match (index, condition.and_then(|text| text.split_once("==\""))) {
            ("*", _) => all.iter().collect(),
            (_, Some((key, wanted))) => all.iter().filter(|item| item[key] == wanted).collect(),
            (_, None) => {
                all.get(index.parse::<usize>().map_err(|_| unknown())?).into_iter().collect()
            }
        };
        (found, rest)
    } else {
        let path = path.strip_prefix('.').ok_or_else(unknown)?;
        let whole = path.replace("\\.", "\0\0");
        let end = whole.find(['.', '[']).unwrap_or(whole.len());
        (vec![&value[whole[..end].replace("\0\0", ".")]], &path[end..])
    };
    let below = found.into_iter().map(|found| select(found, rest));
    Ok(below.collect::<Result<Vec<_>>>()?.concat())
}

fn api_version(kind: &KindInfo) -> String {
    match &*kind.group {
        "" => kind.versions[0].clone(),
        group => format!("{group}/{}", kind.versions[0]),
    }
}

fn path(kind: &KindInfo, namespace: &str, name: &str) -> String {
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    let place = if kind.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    let path = format!("/{root}/{}{place}/{}/{name}", api_version(kind), kind.resource);
    path.trim_end_matches('/').to_owned()
}
