//! The pages of the documentation, and the code in them.

use std::fs;
use std::path::{Path, PathBuf};

/// One Markdown file.
pub struct Page {
    /// Its path from the top of the repository.
    pub path: PathBuf,
    pub text: String,
}

/// A block of code, fenced or indented.
pub struct Block {
    /// The language after the fence; can be empty.
    pub language: String,
    pub lines: Vec<String>,
}

/// The top of the repository.
pub fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &str) -> String {
    let path = top().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder with this extension, sorted.
pub fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(top().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .collect();
    files.sort();
    files
}

/// The text of all files below a folder.
pub fn text_below(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => text.push_str(&text_below(&path)),
            false => text.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap())),
        }
    }
    text
}

/// All pages.
pub fn pages() -> Vec<Page> {
    let mut paths = Vec::new();
    for folder in ["", "docs", "docs/guides", "docs/runbooks", "charts", "charts/belay"] {
        if top().join(folder).is_dir() {
            paths.extend(files(folder, "md"));
        }
    }
    let page = |path: PathBuf| Page {
        text: fs::read_to_string(&path).unwrap(),
        path: path.strip_prefix(top()).unwrap().to_owned(),
    };
    paths.into_iter().map(page).collect()
}

impl Page {
    /// The blocks of code. A fence in a list is indented.
    pub fn blocks(&self) -> Vec<Block> {
        self.parted().0
    }

    /// The spans of code in prose, each on one line.
    pub fn spans(&self) -> Vec<String> {
        let prose = self.parted().1;
        // A span ends within its paragraph or row.
        let parts = prose.split("\n\n").flat_map(|part| match part.trim_start().starts_with('|') {
            true => part.lines().map(str::to_owned).collect::<Vec<_>>(),
            false => vec![part.to_owned()],
        });
        let mut spans = Vec::new();
        for part in parts {
            let code = part.split('`').skip(1).step_by(2);
            spans.extend(code.map(|span| {
                let span = span.replace("\\|", "|");
                span.split_whitespace().collect::<Vec<_>>().join(" ")
            }));
        }
        spans
    }

    /// The blocks of code, and the prose.
    pub fn parted(&self) -> (Vec<Block>, String) {
        let mut blocks: Vec<Block> = Vec::new();
        let mut prose = String::new();
        let mut fenced = false;
        let mut margin = 0;
        let mut indented = false;
        let mut in_list = false;
        let mut blank = true;
        for line in self.text.lines() {
            let trimmed = line.trim();
            if let Some(language) = trimmed.strip_prefix("```") {
                fenced = !fenced;
                margin = line.len() - line.trim_start().len();
                if fenced {
                    blocks.push(Block { language: language.to_owned(), lines: Vec::new() });
                }
                (indented, blank) = (false, false);
                continue;
            }
            if fenced {
                // Keep the indentation relative to the fence.
                let text = line.get(margin..).unwrap_or(trimmed);
                blocks.last_mut().unwrap().lines.push(text.to_owned());
                continue;
            }
            // In a list four spaces are prose, and six are code.
            let depth = line.len() - line.trim_start().len();
            let code = depth >= if in_list { 6 } else { 4 };
            if !trimmed.is_empty() && code && (indented || blank) {
                if !indented {
                    blocks.push(Block { language: String::new(), lines: Vec::new() });
                }
                indented = true;
                blocks.last_mut().unwrap().lines.push(trimmed.to_owned());
                continue;
            }
            blank = trimmed.is_empty();
            if !blank {
                indented = false;
                let begins = trimmed.starts_with("- ")
                    || trimmed.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok());
                in_list = begins || (in_list && depth > 0);
            }
            prose.push_str(line);
            prose.push('\n');
        }
        assert!(!fenced, "{}: a fence is not closed", self.path.display());
        (blocks, prose)
    }
}

#[test]
fn code_is_distinguished_from_prose() {
    let text = "Type `belay\nwhy x` or:\n\n    belay serve\n\n- and\n\n      belay admin\n\n  `in a\n  list`\n\n\
                ```sh\nbelay release\n```\n\n| `a \\| b` |\n";
    let page = Page { path: PathBuf::new(), text: text.to_owned() };
    let blocks: Vec<_> = page.blocks().into_iter().map(|b| (b.language, b.lines)).collect();
    let block = |language: &str, line: &str| (language.to_owned(), vec![line.to_owned()]);
    assert_eq!(
        blocks,
        [block("", "belay serve"), block("", "belay admin"), block("sh", "belay release")]
    );
    assert_eq!(page.spans(), ["belay why x", "in a list", "a | b"]);
}
