//! The workspace's files, and what its manifests and its architecture document say.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::source::Source;

/// The files of the workspace as text.
pub struct Workspace {
    /// All files and folders, relative, with `/`; without hidden ones and build outputs.
    pub paths: Vec<String>,
    /// The Rust files.
    pub sources: Vec<Source>,
    /// The documents (`*.md`) by path.
    pub documents: BTreeMap<String, String>,
    /// The manifests (`Cargo.toml`) of the packages by folder.
    pub manifests: BTreeMap<String, String>,
}

/// Folders that hold what others made.
const OUTPUTS: &[&str] = &["target", "node_modules", "corpus", "artifacts"];

/// Workspaces of their own: one needs another compiler, one builds what is compared with ours.
const APART: &[&str] = &["fuzz", "bench/peers"];

impl Workspace {
    /// Reads the workspace that this package belongs to.
    ///
    /// # Panics
    /// When a file cannot be read.
    #[must_use]
    pub fn read() -> Workspace {
        let root = root();
        let mut workspace = Workspace {
            paths: Vec::new(),
            sources: Vec::new(),
            documents: BTreeMap::new(),
            manifests: BTreeMap::new(),
        };
        workspace.add(&root, "");
        workspace.paths.sort();
        workspace.sources.sort_by(|one, other| one.path.cmp(&other.path));
        workspace
    }

    fn add(&mut self, root: &Path, folder: &str) {
        let entries = match fs::read_dir(root.join(folder)) {
            Ok(entries) => entries,
            Err(error) => panic!("cannot list {}: {error}", root.join(folder).display()),
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let Ok(kind) = entry.file_type() else { continue };
            if name.starts_with('.') && name != ".ci" || OUTPUTS.contains(&name.as_str()) || kind.is_symlink()
            {
                continue;
            }
            self.paths.push(path.clone());
            if kind.is_dir() {
                self.add(root, &path);
                continue;
            }
            let text = || text_of(root, &path);
            if path.ends_with(".rs") {
                self.sources.push(Source::parse(&path, &text()));
            } else if path.ends_with(".md") {
                let text = text();
                self.documents.insert(path, text);
            } else if name == "Cargo.toml" && !folder.is_empty() && !is_apart(folder) {
                self.manifests.insert(folder.to_owned(), text());
            }
        }
    }
}

fn is_apart(folder: &str) -> bool {
    APART.iter().any(|apart| Path::new(folder).starts_with(apart))
}

fn text_of(root: &Path, path: &str) -> String {
    match fs::read_to_string(root.join(path)) {
        Ok(text) => text,
        Err(error) => panic!("cannot read {path}: {error}"),
    }
}

/// The folder of the workspace.
///
/// # Panics
/// Never in a checkout: this package lies one folder below.
#[must_use]
pub fn root() -> PathBuf {
    match Path::new(env!("CARGO_MANIFEST_DIR")).parent() {
        Some(root) => root.to_path_buf(),
        None => panic!("the tests' package is not inside a workspace"),
    }
}

/// A dependency as a manifest names it, with its line.
#[derive(Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Name of the package.
    pub name: String,
    /// Line in the manifest, the first is 1.
    pub line: usize,
}

/// The dependencies of all kinds in the text of a manifest.
#[must_use]
pub fn dependencies(manifest: &str) -> Vec<Dependency> {
    let (mut found, mut in_section) = (Vec::new(), false);
    for (index, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']').trim();
            // A table of its own: [dependencies.name]
            if let Some((_, name)) = section.split_once("dependencies.") {
                found.push(Dependency { name: name.trim_matches('"').to_owned(), line: index + 1 });
            }
            in_section = section.ends_with("dependencies");
        } else if in_section && let Some((key, _)) = line.split_once('=') {
            let name = key.trim().split('.').next().unwrap_or_default().trim_matches('"');
            found.push(Dependency { name: name.to_owned(), line: index + 1 });
        }
    }
    found
}

/// Who may use whom, by the table "Rooms" of ARCHITECTURE.md: crate and the crates it may use.
///
/// # Panics
/// When the table is not there.
#[must_use]
pub fn rooms(architecture: &str) -> BTreeMap<String, Vec<String>> {
    let mut rooms = BTreeMap::new();
    let mut unlimited = Vec::new();
    for cells in table(architecture, "Rooms") {
        let (Some(name), Some(uses)) = (cells.first(), cells.last()) else { continue };
        let name = name.trim_matches('`').to_owned();
        if uses.contains("all of the tool") {
            unlimited.push(name.clone());
        }
        let names = uses.split(',').map(str::trim).filter(|word| word.starts_with('`'));
        rooms.insert(name, names.map(|word| word.trim_matches('`').to_owned()).collect());
    }
    let tool = |name: &&String| !["heap", "malloc", "workloads", "tests", "xtask"].contains(&name.as_str());
    let all: Vec<String> = rooms.keys().filter(tool).cloned().collect();
    for name in unlimited {
        rooms.insert(name, all.clone());
    }
    rooms
}

/// Who may depend on whose package, by the table "Dependencies" of ARCHITECTURE.md: package and the crates it is in; none where it is
/// in tests of any.
///
/// # Panics
/// When the table is not there.
#[must_use]
pub fn reasons(architecture: &str) -> BTreeMap<String, Vec<String>> {
    let mut reasons = BTreeMap::new();
    for cells in table(architecture, "Dependencies") {
        let [packages, crates, ..] = cells[..] else { continue };
        let crates: Vec<String> = crates.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        reasons.extend(packages.split(',').map(|package| (package.trim().to_owned(), crates.clone())));
    }
    reasons
}

/// The cells of each row of the first table in the document's section of that heading.
fn table<'text>(document: &'text str, heading: &str) -> impl Iterator<Item = Vec<&'text str>> {
    let Some((_, section)) = document.split_once(&format!("\n## {heading}\n")) else {
        panic!("ARCHITECTURE.md has no section '{heading}'")
    };
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_every_kind_and_form_are_found() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\na = \"1\"\nb.workspace = true # why\n[dev-dependencies.c]\nversion = \"1\"\n[target.'cfg(unix)'.build-dependencies]\nd = { path = \"d\" }\n[lints]\nworkspace = true";
        let names: Vec<(String, usize)> =
            dependencies(manifest).into_iter().map(|found| (found.name, found.line)).collect();
        assert_eq!(names, [("a".into(), 4), ("b".into(), 5), ("c".into(), 6), ("d".into(), 9)]);
    }

    #[test]
    fn rooms_are_read_from_the_table() {
        let text = "x\n## Rooms\n\n| crate | what | may use |\n|---|---|---|\n| `heap` | `x` | nothing of ours |\n| `malloc` | | `heap` |\n| `records` | | |\n| `probe` | | `records` |\n| `cli` | | all of the tool |\n";
        let rooms = rooms(text);
        assert_eq!(rooms["heap"], Vec::<String>::new());
        assert_eq!(rooms["malloc"], ["heap"]);
        assert_eq!(rooms["cli"], ["cli", "probe", "records"]);
    }
}
