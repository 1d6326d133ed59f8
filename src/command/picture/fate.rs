//! How each fate is drawn. Shape and word contain the same information as the colour.

/// What becomes of an object. The last variant is the most severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DrawnFate {
    /// It stays as it is.
    #[default]
    Unchanged,
    Deleted,
    /// It stays without an owner.
    Orphaned,
    /// It stays Terminating.
    Held,
    /// It is deleted, and its data or address is lost.
    Destroyed,
    /// It stays, and loses an object that it needs.
    Broken,
}

/// How a fate is drawn.
pub struct Style {
    pub name: &'static str,
    /// What becomes of the object, in words.
    pub meaning: &'static str,
    pub fill: &'static str,
    pub stroke: &'static str,
    /// The attributes of the shape in Graphviz.
    pub dot: &'static str,
    /// The text before and after a label in Mermaid.
    pub mermaid: (&'static str, &'static str),
    /// How far the top, the middle and the bottom of the left side are indented in SVG, as
    /// fractions of the height.
    pub slant: [f64; 3],
    /// Whether the right side is parallel to the left side. Otherwise it is mirrored.
    pub parallel: bool,
    /// The radius of the corners.
    pub radius: u8,
}

impl DrawnFate {
    pub const ALL: [Self; 6] =
        [Self::Broken, Self::Destroyed, Self::Held, Self::Orphaned, Self::Deleted, Self::Unchanged];

    pub fn style(self) -> Style {
        let plain = Style {
            name: "unchanged",
            meaning: "stays as it is",
            fill: "#ffffff",
            stroke: "#57606a",
            dot: "shape=ellipse",
            mermaid: ("(", ")"),
            slant: [0.0; 3],
            parallel: false,
            radius: 10,
        };
        match self {
            Self::Unchanged => plain,
            Self::Deleted => Style {
                name: "deleted",
                meaning: "is deleted",
                fill: "#e6eaef",
                stroke: "#424a53",
                dot: "shape=box",
                mermaid: ("[", "]"),
                radius: 0,
                ..plain
            },
            Self::Orphaned => Style {
                name: "orphaned",
                meaning: "stays without an owner",
                fill: "#fff3c0",
                stroke: "#7d5a00",
                dot: "shape=parallelogram",
                mermaid: ("[/", "/]"),
                slant: [0.4, 0.2, 0.0],
                parallel: true,
                radius: 0,
            },
            Self::Held => Style {
                name: "held",
                meaning: "stays Terminating",
                fill: "#d5ecff",
                stroke: "#0a58b0",
                dot: "shape=box style=\"filled,rounded\"",
                mermaid: ("([", "])"),
                radius: 24,
                ..plain
            },
            Self::Destroyed => Style {
                name: "destroyed",
                meaning: "is deleted, and its data or address is lost for good",
                fill: "#ffd4d1",
                stroke: "#a40e26",
                dot: "shape=hexagon",
                mermaid: ("{{", "}}"),
                slant: [0.4, 0.0, 0.4],
                radius: 0,
                ..plain
            },
            Self::Broken => Style {
                name: "broken",
                meaning: "stays, and loses an object that it needs",
                fill: "#ffdfc4",
                stroke: "#a33d00",
                dot: "shape=trapezium",
                mermaid: ("[/", "\\]"),
                slant: [0.4, 0.2, 0.0],
                radius: 0,
                ..plain
            },
        }
    }
}
