//! The arguments that name objects, as in kubectl: `TYPE/NAME …`, `TYPE NAME …`, or `TYPE`
//! with a label selector. TYPE is any name of a kind, with or without its group.

/// An error in the object arguments of a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectWordsError {
    #[error("\"{0}\" is not an object; expected TYPE/NAME or TYPE NAME, such as pvc/data")]
    NoObject(String),
    #[error("\"{0}\" is more than one object; expected TYPE/NAME or TYPE NAME, such as pvc/data")]
    ManyObjects(String),
    #[error(
        "\"{0}\" is a kind, and no object of it is named; name one, or select some with -l or all with --all"
    )]
    OnlyKind(String),
    #[error("-l selects by labels; omit the names, or -l")]
    NamedAndSelected,
}

/// A kind and perhaps the name of an object, as the user typed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectArgument {
    /// The plural, singular or short name of the kind.
    pub kind: String,
    /// The name; `None` for all objects of the kind.
    pub name: Option<String>,
}

impl ObjectArgument {
    fn new(kind: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), name: Some(name.to_owned()) }
    }
}

/// Parses `TYPE/NAME`.
pub fn parse_type_and_name(word: &str) -> Option<(&str, &str)> {
    word.split_once('/').filter(|(kind, name)| is_word(kind) && is_word(name))
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && !word.contains('/')
}

/// Parses the arguments for one object.
pub fn parse_object(words: &[String]) -> Result<(&str, &str), ObjectWordsError> {
    let pair = match words {
        [word] => parse_type_and_name(word),
        [kind, name] => Some((kind.as_str(), name.as_str())),
        _ => None,
    };
    match pair.filter(|(kind, name)| is_word(kind) && is_word(name)) {
        Some((kind, _)) if kind.contains(',') => {
            Err(ObjectWordsError::ManyObjects(words.join(" ")))
        }
        Some(pair) => Ok(pair),
        None => Err(ObjectWordsError::NoObject(words.join(" "))),
    }
}

/// Parses the arguments for any number of objects; `selected`: labels select the objects.
pub fn parse_objects(
    words: &[String],
    selected: bool,
) -> Result<Vec<ObjectArgument>, ObjectWordsError> {
    let with_names = words.iter().any(|word| word.contains('/'));
    if selected && (with_names || words.len() > 1) {
        return Err(ObjectWordsError::NamedAndSelected);
    }
    if with_names {
        let pair = |word: &String| {
            let pair =
                parse_type_and_name(word).map(|(kind, name)| ObjectArgument::new(kind, name));
            pair.ok_or_else(|| ObjectWordsError::NoObject(word.clone()))
        };
        return words.iter().map(pair).collect();
    }
    let Some((kinds, names)) = words.split_first() else { return Ok(Vec::new()) };
    let kinds: Vec<&str> = kinds.split(',').collect();
    if !kinds.iter().all(|kind| is_word(kind)) || !names.iter().all(|name| is_word(name)) {
        return Err(ObjectWordsError::NoObject(words.join(" ")));
    }
    match (names.is_empty(), selected) {
        (true, true) => {
            let all =
                kinds.into_iter().map(|kind| ObjectArgument { kind: kind.into(), name: None });
            Ok(all.collect())
        }
        (true, false) => Err(ObjectWordsError::OnlyKind(words.join(" "))),
        (false, _) => {
            let of_kind =
                |kind: &str| names.iter().map(|name| ObjectArgument::new(kind, name)).collect();
            let all: Vec<Vec<ObjectArgument>> = kinds.into_iter().map(of_kind).collect();
            Ok(all.concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_object_is_one_word_or_two() {
        let read = |line: &str| {
            let words = owned(line);
            parse_object(&words).map(|(kind, name)| format!("{kind} {name}"))
        };
        assert_eq!(read("pvc/data").as_deref(), Ok("pvc data"));
        assert_eq!(read("deployments.apps web").as_deref(), Ok("deployments.apps web"));
        for wrong in ["pvc", "pvc/", "/data", "pvc/a/b", "pvc/a b", "pvc a b"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("is not an object"), "{error}");
        }
        assert!(read("pvc,svc a").unwrap_err().to_string().contains("is more than one object"));
    }

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let read = |line: &str, selected: bool| {
            let shown = parse_objects(&owned(line), selected)?.into_iter().map(|words| {
                let ObjectArgument { kind, name } = words;
                name.map_or(kind.clone(), |name| format!("{kind}/{name}"))
            });
            Ok::<_, ObjectWordsError>(shown.collect::<Vec<_>>().join(" "))
        };
        for (line, meant) in [
            ("pvc/data", "pvc/data"),
            ("pvc data", "pvc/data"),
            ("pvc a b", "pvc/a pvc/b"),
            ("pvc,svc a", "pvc/a svc/a"),
            ("deploy.apps/web ns/shop", "deploy.apps/web ns/shop"),
        ] {
            assert_eq!(read(line, false).as_deref(), Ok(meant), "{line}");
        }
        assert_eq!(read("pods,svc", true).as_deref(), Ok("pods svc"));
        for wrong in ["pvc/", "/data", "pvc/a/b", "pvc/a b", "pvc, a"] {
            let error = read(wrong, false).unwrap_err().to_string();
            assert!(error.contains("is not an object; expected"), "{wrong}: {error}");
        }
        assert!(read("pvc", false).unwrap_err().to_string().contains("no object of it is named"));
        assert!(read("pvc data", true).unwrap_err().to_string().contains("omit the names"));
        assert!(read("pvc/data", true).unwrap_err().to_string().contains("omit the names"));
    }
}
