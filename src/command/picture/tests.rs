//! Drawings of small, hostile and large pictures.

use roxmltree::{Document, Node, ParsingOptions};

use super::collapse::MAX_NODES;
use super::layout::place;
use super::{DrawnFate, Picture};
use crate::command::document::{FailedRead, Object};
use crate::objects::without_controls;

fn object(kind: &str, namespace: &str, name: &str) -> Object {
    let object = Object::of_unknown(kind, namespace, name);
    // Objects of the test differ in their kind as well.
    Object { arguments: format!("{kind} {namespace} {name}"), ..object }
}

/// A picture with every fate, in which every text is made by `text`.
fn every_fate(text: impl Fn(&str) -> String) -> Picture {
    let not_read = [FailedRead { resource: text("gizmos"), why: text("forbidden for you") }];
    let mut picture = Picture::new(text("DENIED: delete namespace/shop"), "shop", &not_read);
    let new = |kind, name| Object { namespace: text("other"), ..object(kind, "", &text(name)) };
    let target = new("Namespace", "shop");
    picture.node(&target).set_target();
    for (index, fate) in DrawnFate::ALL.into_iter().enumerate() {
        let one = Object { arguments: index.to_string(), ..new("Pod", fate.style().name) };
        let node = picture.node(&one);
        node.set_fate(fate, &format!("{}?", fate.style().name), &text("a note"));
        node.add_detail(&text("volume pv-1 10Gi"));
        picture.add_edge(&one, &target, &text("spec.volumes[0].secret.secretName"), index == 0);
    }
    // A cycle.
    picture.add_edge(&target, &Object { arguments: "1".to_owned(), ..target.clone() }, "", false);
    picture
}

/// A group of many Pods that have this name.
fn group(name: &str) -> Picture {
    let mut picture = Picture::new(name.to_owned(), "", &[]);
    for index in 0..60 {
        let pod =
            Object { kind: name.to_owned(), ..object("Pod", name, &format!("{name}{index}")) };
        picture.node(&pod).set_fate(DrawnFate::Deleted, "deleted", name);
    }
    picture
}

const HOSTILE: &[&str] = &[
    "</script><img src=x onerror=alert(1)>",
    "</style></svg></title><script>alert(1)</script>",
    "\" onload=\"alert(1)",
    "' style='x",
    "--><!-- ]]> <![CDATA[ &lt; &#60; &amp;",
    "\"];n9 [URL=\"https://example.com\"",
    "\\\"]; \\N \\l \\",
    "\"] --> n1; end; click n0 \"javascript:alert(1)\"",
    "end\n  subgraph x\nend",
    "%%{init: {\"securityLevel\": \"loose\"}}%%",
    "```\n# heading @user",
    "`**markdown**` _x_ <br/> #quot; #35; style:#x;",
    "\u{202e}gnp\u{2066}.exe\u{200f}\u{61c}",
    "\u{1b}[31m\0\u{7f}\u{9b}\r\n\t\u{fffe}\u{ffff}\u{feff}",
    "größer 名前 🦀",
    "",
];

/// The elements of a page with the names of their attributes.
fn structure(page: &str) -> Vec<String> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document =
        Document::parse_with_options(page, options).unwrap_or_else(|e| panic!("{e}\n{page}"));
    let elements = document.descendants().filter(Node::is_element);
    let names = elements.map(|element| {
        let attributes: Vec<&str> = element.attributes().map(|a| a.name()).collect();
        format!("{} {}", element.tag_name().name(), attributes.join(" "))
    });
    // A text can have more lines than another.
    let mut names: Vec<String> = names.collect();
    names.dedup_by(|a, b| a == b && a.starts_with("text "));
    names
}

/// A text without its quoted strings.
fn skeleton(text: &str) -> String {
    let (mut skeleton, mut quoted, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if !quoted => skeleton.push(c),
            _ => {}
        }
    }
    assert!(!quoted, "{text}");
    skeleton
}

#[test]
fn no_text_of_users_is_markup_in_any_format() {
    let plain = |text: &str| text.to_owned();
    let (dot, mermaid) = (every_fate(plain).dot(), every_fate(plain).mermaid(None));
    let (page, members) = (structure(&every_fate(plain).html()), structure(&group("x").html()));
    for hostile in HOSTILE {
        let evil = |text: &str| format!("{hostile}{text}{hostile}");
        let written = every_fate(evil).dot();
        assert_eq!(skeleton(&written), skeleton(&dot), "{hostile:?}: {written}");
        let written = every_fate(evil).mermaid(None);
        assert_eq!(skeleton(&written), skeleton(&mermaid), "{hostile:?}: {written}");
        let unsafe_chars = |c: char| !c.is_alphanumeric() && !" \n-./,()[]{}\"<>|#;:".contains(c);
        let body = written.replace("[/", "").replace("\\]", "").replace("<br/>", "");
        assert!(!body.contains(unsafe_chars), "{hostile:?}: {written}");
        assert!(!body.replace("-->", "").contains(['<', '`', '%', '@']), "{hostile:?}: {written}");
        assert_eq!(structure(&every_fate(evil).html()), page, "{hostile:?}");
        assert_eq!(structure(&group(hostile).html()), members, "{hostile:?}");
        for written in
            [every_fate(evil).dot(), every_fate(evil).mermaid(None), every_fate(evil).html()]
        {
            let lines: Vec<&str> = written.lines().collect();
            assert!(lines.iter().all(|line| without_controls(line) == **line), "{written:?}");
            assert!(!written.contains(['\u{61c}', '\u{202e}', '\u{2066}']), "{written:?}");
        }
    }
}

#[test]
fn the_page_requests_nothing_and_runs_only_its_own_script() {
    let html = every_fate(str::to_owned).html();
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let page = Document::parse_with_options(&html, options).unwrap();
    let all: Vec<Node<'_, '_>> = page.descendants().filter(Node::is_element).collect();
    let named =
        |name: &'static str| all.iter().copied().filter(move |node| node.tag_name().name() == name);
    for attribute in all.iter().flat_map(|node| node.attributes()) {
        let (name, value) = (attribute.name(), attribute.value());
        let is_reference = ["href", "src", "style", "action", "srcset", "data"].contains(&name);
        assert!(!is_reference && !name.starts_with("on"), "{name}");
        let is_outside = value.contains("://") || value.contains("url(") && value != "url(#head)";
        assert!(!is_outside || name == "xmlns", "{name}={value}");
    }
    let policy = named("meta").find_map(|meta| {
        let is_policy = meta.attribute("http-equiv") == Some("Content-Security-Policy");
        meta.attribute("content").filter(|_| is_policy)
    });
    let hash = |node: Node<'_, '_>| super::html::hash(node.text().unwrap());
    let scripts: Vec<String> = named("script").map(hash).collect();
    let styles: Vec<String> = named("style").map(hash).collect();
    let expected = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        scripts.join(" "),
        styles.join(" ")
    );
    assert_eq!((policy, scripts.len(), styles.len()), (Some(expected.as_str()), 1, 2));
    assert!(!html.contains("@import") && !html.contains("fetch("));
}

#[test]
fn each_object_is_one_element_with_its_fate_and_each_edge_has_its_field() {
    let html = every_fate(str::to_owned).html();
    let svg = &html[html.rfind("<svg xmlns").unwrap()..html.rfind("</svg>").unwrap() + 6];
    let svg = Document::parse(svg).unwrap();
    let of_class = |class: &str| {
        let has_class = |node: &Node<'_, '_>| {
            node.attribute("class")
                .is_some_and(|classes| classes.split(' ').any(|other| other == class))
        };
        svg.descendants().filter(has_class).collect::<Vec<_>>()
    };
    assert_eq!((of_class("node").len(), of_class("edge").len()), (7, 7));
    assert_eq!((of_class("target").len(), of_class("weak").len()), (1, 1));
    for fate in DrawnFate::ALL {
        let style = fate.style();
        let of_fate = of_class(style.name);
        let node =
            of_fate.iter().find(|node| node.attribute("class").unwrap().contains("uncertain"));
        let text: String = node.unwrap().descendants().filter_map(|node| node.text()).collect();
        assert!(text.contains(&format!("{}?", style.name)) && text.contains("pv-1"), "{text}");
        let mut others =
            DrawnFate::ALL.into_iter().filter(|other| *other != fate).map(DrawnFate::style);
        // Without colours, the shape and the word are different.
        let same = others.find(|other| {
            (other.slant, other.radius, other.parallel)
                == (style.slant, style.radius, style.parallel)
                || other.dot == style.dot
                || other.mermaid == style.mermaid
        });
        assert!(same.is_none(), "{}", style.name);
    }
    let edge = of_class("edge")[1];
    let lines = edge.children().filter(|node| node.has_tag_name("text")).count();
    let text: String = edge
        .descendants()
        .filter(|n| n.parent().unwrap().has_tag_name("text"))
        .filter_map(|n| n.text())
        .collect();
    assert_eq!((text.as_str(), lines), ("spec.volumes[0].secret.secretName", 2));
}

#[test]
fn a_picture_is_drawn_for_graphviz_and_mermaid() {
    let mut picture = Picture::new("DENIED: delete secret/\"a\"".to_owned(), "shop", &[])
        .with_note("100% of <kinds>".to_owned());
    let (secret, user) = (object("Secret", "shop", "a\"b"), object("Pod", "x", "end"));
    picture.node(&secret).set_target();
    picture.node(&secret).set_fate(DrawnFate::Deleted, "deleted?", "");
    picture.node(&user).set_fate(DrawnFate::Broken, "BROKEN", "a\\b");
    picture.add_edge(&user, &secret, "spec.`x`", true);
    let mermaid = "flowchart RL\n  \
        n0[\"deleted#63;<br/>#39;secret/a#34;b#39;\"]\n  \
        n1[/\"BROKEN<br/>pod/end -n x\"\\]\n  \
        n1 -.->|\"spec.#96;x#96;\"| n0\n  \
        note0>\"100#37; of #60;kinds#62;\"]\n  \
        classDef broken fill:#ffdfc4,stroke:#a33d00,color:#1f2328\n  class n1 broken\n  \
        classDef deleted fill:#e6eaef,stroke:#424a53,color:#1f2328\n  class n0 deleted\n  \
        classDef target stroke-width:4px\n  class n0 target\n";
    assert_eq!(picture.clone().mermaid(None), mermaid);
    let dot = "  n0 [label=\"deleted?\\n'secret/a\\\"b'\" shape=box fillcolor=\"#e6eaef\" \
        color=\"#424a53\" penwidth=3 tooltip=\"\"];\n  \
        n1 [label=\"BROKEN\\npod/end -n x\" shape=trapezium fillcolor=\"#ffdfc4\" \
        color=\"#a33d00\" tooltip=\"a\\\\b\"];\n  \
        n1 -> n0 [label=\"spec.`x`\" style=dashed];\n}\n";
    let written = picture.dot();
    assert!(written.ends_with(dot), "{written}");
    assert!(
        written.contains("label=\"DENIED: delete secret/\\\"a\\\"\\n100% of <kinds>\";"),
        "{written}"
    );
}

/// A Namespace with this many objects, some with a worse fate than the others.
fn large(objects: usize, kinds: usize) -> Picture {
    let mut picture = Picture::new("delete".to_owned(), "shop", &[]);
    let target = object("Namespace", "", "shop");
    picture.node(&target).set_fate(DrawnFate::Held, "waits", "");
    for index in 0..objects {
        let name = format!("{}{index}", "long-name-".repeat(20));
        let one = object(&format!("Kind{}", index % kinds), "shop", &name);
        let (fate, word) = match index % 1000 {
            7 => (DrawnFate::Broken, "BROKEN"),
            8 => (DrawnFate::Destroyed, "DESTROYED"),
            _ => (DrawnFate::Deleted, "deleted"),
        };
        picture.node(&one).set_fate(fate, word, "a note");
        picture.add_edge(&one, &target, "metadata.namespace", false);
        let other = object(&format!("Kind{}", 3 * index % kinds), "shop", &name);
        picture.add_edge(&one, &other, "spec.other", false);
    }
    picture
}

#[test]
fn a_picture_of_any_number_of_objects_has_a_limited_size() {
    let nodes = |text: &str| text.matches(" tooltip=").count();
    assert_eq!(nodes(&large(49, 49).dot()), 50);
    for (objects, kinds) in [(60, 60), (10_000, 3), (10_000, 10_000)] {
        let picture = large(objects, kinds);
        let total = picture.len();
        let (dot, html) = (picture.clone().dot(), picture.clone().html());
        assert!(nodes(&dot) <= MAX_NODES, "{objects} {kinds}: {}", nodes(&dot));
        assert!(dot.matches(" -> ").count() <= 100 && dot.len() < 100_000, "{}", dot.len());
        assert!(picture.mermaid(None).len() < 50_000, "the limit of Mermaid");
        assert!(html.len() < 1_000_000, "{objects} {kinds}: {}", html.len());
        // Each object is drawn, or counted in a group.
        let drawn = large(objects, kinds).collapsed(MAX_NODES);
        assert_eq!(drawn.nodes.iter().map(|node| node.count).sum::<usize>(), total);
        let listed: usize = drawn.nodes.iter().map(|node| node.members.len()).sum();
        assert!(listed <= 2000 && listed > 10, "{listed}");
    }
    let few = large(10_000, 3).collapsed(MAX_NODES);
    let broken = few.nodes.iter().filter(|node| node.fate == DrawnFate::Broken);
    assert_eq!(broken.map(|node| node.count).collect::<Vec<_>>(), [1; 10], "not merged");
}

#[test]
fn a_picture_has_a_limited_number_of_edges_and_counts_the_others() {
    let mut picture = Picture::default();
    let pods: Vec<Object> = (0..20).map(|n| object("Pod", "shop", &n.to_string())).collect();
    for (from, to) in pods.iter().flat_map(|from| pods.iter().map(move |to| (from, to))) {
        picture.add_edge(from, to, "spec.x", false);
        picture.add_edge(from, to, "spec.x", false);
    }
    let dot = picture.dot();
    // An object has no edge to itself, and one to each other object.
    assert!(dot.contains("280 more arrows are not drawn"), "{dot}");
    assert_eq!(dot.matches(" -> ").count(), 100);
}

#[test]
fn an_object_has_its_most_severe_fate() {
    let mut picture = Picture::default();
    let one = object("Pod", "shop", "a");
    for (fate, word) in
        [(DrawnFate::Deleted, "deleted?"), (DrawnFate::Broken, "BROKEN"), (DrawnFate::Held, "held")]
    {
        picture.node(&one).set_fate(fate, word, "");
    }
    assert!(picture.dot().contains("BROKEN"));
}

#[test]
fn boxes_never_overlap_and_a_layout_is_always_the_same() {
    let mut state = 1u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for round in 0..60 {
        let count = 1 + random(40);
        let boxes: Vec<_> = (0..count)
            .map(|n| (40.0 + 30.0 * (n % 7) as f64, 20.0 + 10.0 * (n % 3) as f64))
            .collect();
        let mut edges: Vec<(usize, usize)> =
            (0..random(60)).map(|_| (random(count), random(count))).collect();
        edges.retain(|(from, to)| from != to);
        edges.sort_unstable();
        edges.dedup();
        let layout = place(&boxes, &edges);
        let again = place(&boxes, &edges);
        assert_eq!((&layout.points, &layout.routes), (&again.points, &again.routes), "{round}");
        let side = |n: usize| {
            let ((x, y), (w, h)) = (layout.points[n], boxes[n]);
            (x - w / 2.0, x + w / 2.0, y - h / 2.0, y + h / 2.0)
        };
        for one in 0..count {
            let (left, right, top, bottom) = side(one);
            assert!(left >= -0.1 && top >= -0.1, "{round}");
            assert!(right <= layout.size.0 + 0.1 && bottom <= layout.size.1 + 0.1, "{round}");
            for other in 0..one {
                let (l, r, t, b) = side(other);
                assert!(
                    right <= l || r <= left || bottom <= t || b <= top,
                    "{round}: {one} {other}"
                );
            }
        }
        assert_eq!(layout.routes.len(), edges.len());
    }
}
