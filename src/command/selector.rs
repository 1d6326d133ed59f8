//! Parses label selectors as kubectl's `-l` does: `app=web,tier!=db`,
//! `env in (a,b)`, `env notin (c)`, `track`, `!track`.

use crate::graph::Requirement;

/// The invalid part of a label selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a label selector; expected KEY=VALUE, KEY!=VALUE, KEY, !KEY, \"KEY in (A,B)\" \
     or \"KEY notin (A,B)\""
)]
pub struct SelectorError(String);

pub fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    parts(text).into_iter().filter(|part| !part.is_empty()).map(requirement).collect()
}

/// Splits at commas outside of brackets.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_u32, 0);
    for (index, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[from..index].trim());
                from = index + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts
}

fn requirement(part: &str) -> Result<Requirement, SelectorError> {
    let error = || SelectorError(part.to_owned());
    let key = |key: &str| {
        let key = key.trim();
        let is_valid = !key.is_empty() && !key.contains([' ', '(', ')', '=', '!']);
        is_valid.then(|| key.to_owned()).ok_or_else(error)
    };
    let single_value = |value: &str| {
        let value = value.trim();
        let is_valid = !value.contains([' ', '(', ')', '=', '!']);
        is_valid.then(|| vec![value.to_owned()]).ok_or_else(error)
    };
    if let Some((name, rest)) = part.split_once('(') {
        let values = rest.strip_suffix(')').ok_or_else(error)?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match name.trim_end().rsplit_once(' ') {
            Some((name, "in")) => Ok(Requirement::In(key(name)?, values)),
            Some((name, "notin")) => Ok(Requirement::NotIn(key(name)?, values)),
            _ => Err(error()),
        };
    }
    if let Some((name, value)) = part.split_once("!=") {
        Ok(Requirement::NotIn(key(name)?, single_value(value)?))
    } else if let Some((name, value)) = part.split_once('=') {
        Ok(Requirement::In(key(name)?, single_value(value.strip_prefix('=').unwrap_or(value))?))
    } else if let Some(name) = part.strip_prefix('!') {
        Ok(Requirement::Absent(key(name)?))
    } else {
        Ok(Requirement::Exists(key(part)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_those_of_kubectl() {
        let owned = |values: &[&str]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
        let is = |key: &str, values: &[&str]| Requirement::In(key.into(), owned(values));
        let not = |key: &str, values: &[&str]| Requirement::NotIn(key.into(), owned(values));
        for (text, meant) in [
            ("app=web", vec![is("app", &["web"])]),
            ("app==web, tier != db", vec![is("app", &["web"]), not("tier", &["db"])]),
            ("env in (a, b),x/y", vec![is("env", &["a", "b"]), Requirement::Exists("x/y".into())]),
            ("env notin (c),!t", vec![not("env", &["c"]), Requirement::Absent("t".into())]),
            ("app=", vec![is("app", &[""])]),
        ] {
            assert_eq!(parse(text), Ok(meant), "{text}");
        }
        for wrong in ["=a", "a b", "a in b", "a in (b", "a=b=c", "a of (b)", "!"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains("is not a label selector; expected"), "{wrong}: {error}");
        }
    }
}
