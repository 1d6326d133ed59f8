//! The report of `impact` as a graph.

use super::affected::AffectedObject;
use super::report::Impact;
use super::text::{cascade_option, condition, outcome_label, targets_text, verdict_text};
use crate::command::picture::{DrawnFate, Picture};

/// The graph of the effects. Edges go from an object to its owner, to its Namespace or CRD, and to
/// the objects that it loses or keeps.
pub fn picture(impact: &Impact) -> Picture {
    let title = match &impact.message {
        Some(message) => message.clone(),
        None => {
            let (verdict, targets) = (verdict_text(impact), targets_text(impact));
            let condition = condition(impact).map_or("", |_| "; the effects if it is approved");
            format!("{verdict}: delete {targets}{}{condition}", cascade_option(impact))
        }
    };
    let mut picture = Picture::new(title, impact.omitted_namespace(), &impact.not_read);
    for object in &impact.objects {
        let (fate, word) = fate(impact, object);
        let node = picture.node(&object.object);
        node.set_fate(fate, &word, &object.note);
    }
    for lost in &impact.destroyed {
        let node = picture.node(&lost.by);
        node.add_detail(
            format!("{} {} {}", lost.what.to_lowercase(), lost.name, lost.size).trim_end(),
        );
    }
    impact.targets.iter().for_each(|target| picture.node(target).set_target());
    for object in &impact.objects {
        if let Some(via) = &object.via {
            picture.add_edge(&object.object, &via.of, &via.field_path, false);
        }
    }
    for object in &impact.objects {
        for (user, path) in object.after.iter().zip(&object.after_paths) {
            picture.node(user).set_fate(DrawnFate::Unchanged, "stays", "");
            picture.add_edge(user, &object.object, path, false);
        }
    }
    picture
}

/// The fate of an object, and the word of the table for it.
fn fate(impact: &Impact, object: &AffectedObject) -> (DrawnFate, String) {
    let (word, ..) = outcome_label(object);
    let mut lost = impact
        .volumes(true)
        .into_iter()
        .chain(impact.volumes(false))
        .filter(|lost| object.id.is_some() && lost.id == object.id);
    match object.outcome {
        "Deleted" => match lost.next() {
            Some(lost) => {
                let unknown = if object.certain && lost.certain { "" } else { "?" };
                (DrawnFate::Destroyed, format!("DESTROYED{unknown}"))
            }
            None => (DrawnFate::Deleted, word.to_owned()),
        },
        "Orphaned" => (DrawnFate::Orphaned, word.to_owned()),
        "Denied" => (DrawnFate::Unchanged, word.to_owned()),
        "Held" => (DrawnFate::Held, word.to_owned()),
        _ => (DrawnFate::Broken, word.to_owned()),
    }
}
