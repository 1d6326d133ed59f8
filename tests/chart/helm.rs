//! Runs helm and reads the rendered objects.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

use serde_json::Value;

/// The namespace of the release.
pub const NAMESPACE: &str = "belay";

/// The chart.
pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/belay")
}

/// A file of the chart.
pub fn file(path: &str) -> String {
    let path = chart().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file of the chart, as YAML.
pub fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&file(path)).unwrap()
}

/// The values of `ci/`, each with its name.
pub fn ci() -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(chart().join("ci")).unwrap();
    let named = |path: PathBuf| {
        let file = path.file_name()?.to_str()?.to_owned();
        Some((file.strip_suffix("-values.yaml")?.to_owned(), path))
    };
    let mut files: Vec<_> = entries.filter_map(|entry| named(entry.unwrap().path())).collect();
    files.sort();
    assert_eq!(files.len(), 7, "{files:?}");
    files
}

/// Runs helm with these arguments.
pub fn helm<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    let helm = HELM.get_or_init(|| crate::harness::plane::binaries().unwrap().join("helm"));
    Command::new(helm).args(arguments).output().unwrap()
}

/// A release to render.
#[derive(Debug, Clone, Default)]
pub struct Render {
    release: Option<String>,
    namespace: Option<String>,
    files: Vec<PathBuf>,
    sets: Vec<String>,
}

impl Render {
    /// A release with another name than "belay".
    pub fn named(release: &str) -> Self {
        Self { release: Some(release.to_owned()), ..Self::default() }
    }

    /// A release in another namespace than "belay".
    pub fn into(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Adds the values of a file.
    pub fn with(mut self, file: &Path) -> Self {
        self.files.push(file.to_owned());
        self
    }

    /// Sets a value, as JSON: `profile="strict"`.
    pub fn set(mut self, value: &str) -> Self {
        self.sets.push(value.to_owned());
        self
    }

    /// Runs helm once for each set of arguments.
    fn run(&self) -> Output {
        static ANSWERS: Mutex<Option<HashMap<Vec<String>, Output>>> = Mutex::new(None);
        let arguments = self.arguments();
        let known =
            |answers: &Option<HashMap<_, Output>>| answers.as_ref()?.get(&arguments).cloned();
        if let Some(output) = known(&ANSWERS.lock().unwrap()) {
            return output;
        }
        let output = helm(&arguments);
        ANSWERS.lock().unwrap().get_or_insert_default().insert(arguments, output.clone());
        output
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["template".to_owned()];
        // The oldest supported version.
        arguments.push("--kube-version=1.33.0".to_owned());
        arguments.extend(self.what());
        arguments
    }

    fn what(&self) -> Vec<String> {
        let release = self.release.as_deref().unwrap_or("belay");
        let mut arguments = vec![release.to_owned(), chart().display().to_string()];
        let namespace = self.namespace.as_deref().unwrap_or(NAMESPACE);
        arguments.push(format!("--namespace={namespace}"));
        arguments.extend(self.files.iter().map(|file| format!("--values={}", file.display())));
        arguments.extend(self.sets.iter().map(|set| format!("--set-json={set}")));
        arguments
    }

    /// The output of helm.
    pub fn text(&self) -> String {
        self.answer().unwrap_or_else(|said| panic!("{self:?}: {said}"))
    }

    /// The output of helm, or its error.
    pub fn answer(&self) -> Result<String, String> {
        let output = self.run();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// The notes after an install.
    pub fn notes(&self) -> String {
        let dry = ["install", "--dry-run=client"].map(str::to_owned);
        let output = helm(dry.into_iter().chain(self.what()));
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_once("NOTES:\n").unwrap_or_else(|| panic!("{self:?}: {text}")).1.to_owned()
    }

    /// The error of helm.
    pub fn refusal(&self) -> String {
        let output = self.run();
        assert!(!output.status.success(), "{self:?} was rendered");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The objects.
    pub fn objects(&self) -> Objects {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&self.text()).unwrap();
        Objects(documents.into_iter().filter(|document| !document.is_null()).collect())
    }
}

/// The rendered objects.
#[derive(Debug)]
pub struct Objects(pub Vec<Value>);

impl Objects {
    /// The objects of a kind.
    pub fn of(&self, kind: &str) -> Vec<&Value> {
        self.0.iter().filter(|object| object["kind"] == kind).collect()
    }

    /// The object of this kind and name, if it exists.
    pub fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        self.of(kind).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    /// The object of this kind and name, which must exist.
    pub fn get(&self, kind: &str, name: &str) -> &Value {
        self.find(kind, name).unwrap_or_else(|| panic!("there is no {kind} {name}"))
    }
}

/// The strings of a list.
pub fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
