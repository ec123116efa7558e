//! The rules of the workspace that can be read off its text. Each returns its violations as `file:line: rule`.

use std::collections::BTreeMap;

use crate::source::{Line, Source};
use crate::workspace::{dependencies, reasons, rooms};

/// Most lines of a Rust file.
const MOST_LINES: usize = 500;
/// The C ABI is one list of functions and may be longer.
const MAY_BE_LONGER: &[&str] = &["crates/malloc/src/"];
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "type", "types"];
/// Where `unsafe` may stand; the models compile the heap's own lock against loom, a fuzz target owns blocks, a peer of the
/// benchmark is a malloc.
const MAY_BE_UNSAFE: &[&str] =
    &["crates/heap/", "crates/malloc/", "crates/probe/", "tests/models/", "fuzz/", "bench/peers/dlmalloc/"];
/// Where raw system calls may stand.
const MAY_CALL_SYSTEM: &[&str] = &["crates/heap/src/os/", "crates/probe/"];
/// Data in, data out.
const PURE: &[&str] = &["crates/records/src/", "crates/diagnosis/src/", "crates/report/src/"];
/// What reaches out of a program, and the clocks.
const IMPURE: &[&str] =
    &["std::fs", "std::net", "std::process", "std::thread", "std::env", "Instant::now", "SystemTime::now"];
/// What prints.
const PRINTS: &[&str] = &["print!", "println!", "eprint!", "eprintln!"];
/// How far above its subject a comment may stand.
const NEAR_LINES: usize = 12;

fn starts_with_any(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix))
}

/// Files of at most 500 lines, one idea each.
#[must_use]
pub fn file_lengths(sources: &[Source]) -> Vec<String> {
    let long =
        |source: &&Source| source.lines.len() > MOST_LINES && !starts_with_any(&source.path, MAY_BE_LONGER);
    let message = |source: &Source| {
        format!(
            "{}:{}: a file has at most {MOST_LINES} lines: the idea has split",
            source.path,
            source.lines.len()
        )
    };
    sources.iter().filter(long).map(message).collect()
}

/// Files are named by what they hold.
#[must_use]
pub fn file_names(paths: &[String]) -> Vec<String> {
    let stem = |path: &str| {
        path.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default().to_owned()
    };
    let empty = |path: &&String| EMPTY_NAMES.contains(&stem(path).as_str());
    paths.iter().filter(empty).map(|path| format!("{path}:1: no file is named {}", stem(path))).collect()
}

/// `unsafe` stands only in the rooms for it, and the others forbid it.
#[must_use]
pub fn unsafe_rooms(sources: &[Source]) -> Vec<String> {
    let mut violations = Vec::new();
    for source in sources.iter().filter(|source| !starts_with_any(&source.path, MAY_BE_UNSAFE)) {
        for (index, line) in source.lines.iter().enumerate() {
            if has_word(&line.code, "unsafe") {
                violations
                    .push(format!("{}: unsafe stands only in heap, malloc and probe", source.at(index)));
            }
        }
        let is_root = source.path.ends_with("src/lib.rs") || source.path.ends_with("src/main.rs");
        if is_root && !source.lines.iter().any(|line| line.code.contains("#![forbid(unsafe_code)]")) {
            violations.push(format!("{}:1: the crate must say #![forbid(unsafe_code)]", source.path));
        }
    }
    violations
}

/// Every unsafe block and impl says who guarantees what it needs.
#[must_use]
pub fn safety_comments(sources: &[Source]) -> Vec<String> {
    let mut violations = Vec::new();
    for source in sources {
        for (index, line) in source.lines.iter().enumerate() {
            let opens = line.code.contains("unsafe {") || line.code.contains("unsafe impl");
            if opens && !near_comment(&source.lines, index, "SAFETY:") {
                violations.push(format!("{}: unsafe without a // SAFETY: comment above", source.at(index)));
            }
        }
    }
    violations
}

/// Every memory ordering says what it publishes: nearby, in its function or its documentation, or once for a whole impl with
/// the word "throughout".
#[must_use]
pub fn ordering_comments(sources: &[Source]) -> Vec<String> {
    const ATOMIC: &[&str] = &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
    let mut violations = Vec::new();
    for source in sources {
        for (index, line) in source.lines.iter().enumerate() {
            let code = line.code.trim_start();
            let is_import = code.starts_with("use ") || code.starts_with("pub use ");
            let mut words = code.split("Ordering::").skip(1);
            let names_one = words.any(|after| ATOMIC.iter().any(|word| after.starts_with(word)));
            if is_import && code.contains("Ordering::") && ATOMIC.iter().any(|word| has_word(code, word)) {
                violations.push(format!(
                    "{}: orderings are written as Ordering::X, not imported",
                    source.at(index)
                ));
            }
            if line.is_test || is_import || !names_one {
                continue;
            }
            if !near_comment(&source.lines, index, "ORDERING:") && !enclosing_comment(&source.lines, index) {
                violations
                    .push(format!("{}: a memory ordering without an ORDERING: comment", source.at(index)));
            }
        }
    }
    violations
}

fn near_comment(lines: &[Line], index: usize, word: &str) -> bool {
    lines[index.saturating_sub(NEAR_LINES)..=index].iter().any(|line| line.comment.contains(word))
}

/// Whether the function around the line, or the documentation above it, explains its orderings; or a line at the impl's level
/// above explains those of all that follow.
fn enclosing_comment(lines: &[Line], index: usize) -> bool {
    let indent = |line: &Line| line.code.len() - line.code.trim_start().len();
    let mut in_function = true;
    for at in (0..=index).rev() {
        let line = &lines[at];
        if line.comment.contains("ORDERING:") && (in_function || line.comment.contains("throughout")) {
            return true;
        }
        let is_closed = line.code.trim_end().ends_with('}') && indent(line) < indent(&lines[index]);
        let is_item_at_root =
            indent(line) == 0 && line.code.trim_end().ends_with('{') && !line.code.starts_with('}');
        if is_item_at_root && !has_word(&line.code, "fn") {
            return false;
        }
        // The previous item has ended: what stands above belongs to others.
        in_function &= !is_closed || at == index;
        if is_closed && indent(line) == 0 {
            return false;
        }
    }
    false
}

/// Raw system calls stand only at the rim.
#[must_use]
pub fn system_calls(sources: &[Source]) -> Vec<String> {
    let mut violations = Vec::new();
    for source in sources.iter().filter(|source| !starts_with_any(&source.path, MAY_CALL_SYSTEM)) {
        for (index, line) in source.lines.iter().enumerate() {
            let in_assembly = line.strings.trim_start().starts_with("syscall")
                && (line.code.contains("asm!") || line.code.trim_start().starts_with('"'));
            let by_libc = line.code.contains("libc::syscall") || line.code.contains("fn syscall");
            if in_assembly || by_libc {
                violations
                    .push(format!("{}: raw system calls stand only in heap::os and probe", source.at(index)));
            }
        }
    }
    violations
}

/// No files, processes and clocks in the pure crates, and nothing is printed by a crate other than `cli`; tests may.
#[must_use]
pub fn pure_rooms(sources: &[Source]) -> Vec<String> {
    let mut violations = Vec::new();
    for source in sources {
        let is_pure = starts_with_any(&source.path, PURE);
        let is_silent = source.path.starts_with("crates/")
            && source.path.contains("/src/")
            && !source.path.starts_with("crates/cli/");
        for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.is_test) {
            if is_pure && IMPURE.iter().any(|word| has_word(&line.code, word)) {
                violations.push(format!(
                    "{}: records, diagnosis and report take data and return data: no I/O, no clocks",
                    source.at(index)
                ));
            }
            if is_silent && PRINTS.iter().any(|word| has_word(&line.code, word)) {
                violations.push(format!("{}: nothing is printed outside cli", source.at(index)));
            }
        }
    }
    violations
}

/// The modules of `crates/<name>/src/lib.rs` stand in layer order; each uses only those above it.
#[must_use]
pub fn layer_order(sources: &[Source], name: &str) -> Vec<String> {
    let folder = format!("crates/{name}/src/");
    let Some(root) = sources.iter().find(|source| source.path == format!("{folder}lib.rs")) else {
        return vec![format!("{folder}lib.rs:1: not found")];
    };
    let layers: Vec<&str> =
        root.lines.iter().filter(|line| !line.is_test).filter_map(|line| module(&line.code)).collect();
    let mut violations = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with(&folder) && source.path != root.path)
    {
        let within = &source.path[folder.len()..];
        let own = within.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        let Some(own_layer) = layers.iter().position(|&layer| layer == own) else {
            // A file that no `mod` names is compiled under #[path] or not at all.
            continue;
        };
        let is_at_root = !within.contains('/');
        for (index, used) in used_modules(&source.lines, is_at_root) {
            match layers.iter().position(|&layer| layer == used) {
                Some(layer) if layer <= own_layer => {}
                Some(_) => violations.push(format!(
                    "{}: {own} uses {used}, which stands below it in {}",
                    source.at(index),
                    root.path
                )),
                None => violations
                    .push(format!("{}: {own} uses crate::{used}, which is no layer", source.at(index))),
            }
        }
    }
    violations
}

fn module(code: &str) -> Option<&str> {
    let code = code.trim();
    let code = code.strip_prefix("pub(crate) ").or_else(|| code.strip_prefix("pub ")).unwrap_or(code);
    code.strip_prefix("mod ")?.strip_suffix(';')
}

/// The text behind each `crate::`, or `super::` where that is the same.
fn crate_paths(code: &str, is_at_root: bool) -> Vec<&str> {
    let starts_word =
        |at: usize| !code[..at].ends_with(|before: char| before.is_alphanumeric() || "_:$".contains(before));
    let mut paths: Vec<&str> = code
        .match_indices("crate::")
        .filter(|&(at, _)| starts_word(at))
        .map(|(at, word)| &code[at + word.len()..])
        .collect();
    if is_at_root {
        let of_super = code.match_indices("super::").filter(|&(at, _)| starts_word(at));
        paths.extend(of_super.map(|(at, word)| &code[at + word.len()..]));
    }
    paths
}

/// The modules that lines outside of tests use, with the line's index; groups in braces may span lines.
fn used_modules(lines: &[Line], is_at_root: bool) -> Vec<(usize, String)> {
    let mut used = Vec::new();
    // Inside `mod x {` of the file, `super` is the file itself.
    let mut inline_until: Option<usize> = None;
    for (index, line) in lines.iter().enumerate() {
        let indent = line.code.len() - line.code.trim_start().len();
        if inline_until == Some(indent) && line.code.trim_start().starts_with('}') {
            inline_until = None;
        }
        let code = line.code.trim();
        if inline_until.is_none() && has_word(code, "mod") && code.ends_with('{') {
            inline_until = Some(indent);
        }
        if line.is_test {
            continue;
        }
        let found = crate_paths(&line.code, is_at_root && inline_until.is_none());
        for path in found {
            if path.starts_with('{') {
                let mut group = path.to_owned();
                for following in &lines[index + 1..] {
                    if group.matches('{').count() <= group.matches('}').count() {
                        break;
                    }
                    group.push_str(&following.code);
                }
                used.extend(first_names(&group).into_iter().map(|name| (index, name)));
            } else {
                used.push((index, identifier(path)));
            }
        }
    }
    used
}

/// The first name of each path in a group `{a, b::{c, d}, e as f}`.
fn first_names(group: &str) -> Vec<String> {
    let (mut names, mut depth, mut expects) = (Vec::new(), 0, false);
    for (at, character) in group.char_indices() {
        match character {
            '{' => {
                depth += 1;
                expects = depth == 1;
            }
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => expects = true,
            _ if expects && !character.is_whitespace() => {
                names.push(identifier(&group[at..]));
                expects = false;
            }
            _ => {}
        }
    }
    names
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}

fn has_word(code: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(is_part) && !code[at + word.len()..].starts_with(is_part))
}

/// Crates use only the crates that ARCHITECTURE.md allows them, and inherit the workspace's lints.
#[must_use]
pub fn crate_dependencies(manifests: &BTreeMap<String, String>, architecture: &str) -> Vec<String> {
    let rooms = rooms(architecture);
    let mut violations = Vec::new();
    for (folder, manifest) in manifests {
        let name = folder.rsplit('/').next().unwrap_or(folder);
        if !manifest.contains("[lints]\nworkspace = true") {
            violations.push(format!("{folder}/Cargo.toml:1: no [lints] workspace = true"));
        }
        let Some(allowed) = rooms.get(name) else {
            violations
                .push(format!("{folder}/Cargo.toml:1: {name} is not in ARCHITECTURE.md's table of rooms"));
            continue;
        };
        for dependency in dependencies(manifest) {
            if let Some(ours) = dependency.name.strip_prefix("faultless-")
                && !allowed.iter().any(|room| room == ours)
            {
                violations.push(format!(
                    "{folder}/Cargo.toml:{}: {name} may not use {ours} (ARCHITECTURE.md, Rooms)",
                    dependency.line
                ));
            }
        }
    }
    violations
}

/// Every package of others has its reason in ARCHITECTURE.md, in the crates that it is in, and no other has one.
#[must_use]
pub fn dependency_reasons(manifests: &BTreeMap<String, String>, architecture: &str) -> Vec<String> {
    let reasons = reasons(architecture);
    let mut violations = Vec::new();
    let mut used = Vec::new();
    for (folder, manifest) in manifests {
        let name = folder.rsplit('/').next().unwrap_or(folder);
        for dependency in dependencies(manifest) {
            if dependency.name.starts_with("faultless-") {
                continue;
            }
            let is_told = |crates: &Vec<String>| crates.is_empty() || crates.iter().any(|room| room == name);
            if !reasons.get(&dependency.name).is_some_and(is_told) {
                violations.push(format!(
                    "{folder}/Cargo.toml:{}: {} in {name} has no reason in ARCHITECTURE.md, Dependencies",
                    dependency.line, dependency.name
                ));
            }
            used.push((dependency.name, name));
        }
    }
    let is_read = |room: &str| manifests.keys().any(|folder| folder.rsplit('/').next() == Some(room));
    for (package, crates) in &reasons {
        let idle = crates
            .iter()
            .filter(|room| is_read(room) && !used.iter().any(|(name, user)| name == package && user == room));
        violations.extend(idle.map(|room| format!("ARCHITECTURE.md: {room} does not depend on {package}")));
        if crates.is_empty() && !used.iter().any(|(name, _)| name == package) {
            violations.push(format!("ARCHITECTURE.md: nobody depends on {package}"));
        }
    }
    violations
}

/// Paths that documents name exist: links, and words in backquotes that look like a path of this workspace.
#[must_use]
pub fn document_paths(documents: &BTreeMap<String, String>, paths: &[String]) -> Vec<String> {
    let mut violations = Vec::new();
    for (document, text) in documents {
        let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
        let exists = |path: &str| {
            let path = path.trim_start_matches("./").trim_end_matches('/');
            let beside = beside(folder, path);
            let end = format!("/{path}");
            path == "."
                || paths.iter().any(|known| known == path || *known == beside || known.ends_with(&end))
        };
        let mut is_fenced = false;
        for (index, line) in text.lines().enumerate() {
            is_fenced ^= line.trim_start().starts_with("```");
            let quoted = line.split('`').skip(1).step_by(2).filter(|word| looks_like_path(word, paths));
            let linked = links(line).map(|(path, _)| path).filter(|path| !path.is_empty());
            for path in quoted.filter(|_| !is_fenced).chain(linked) {
                if !exists(path) {
                    violations.push(format!("{document}:{}: {path} does not exist", index + 1));
                }
            }
        }
    }
    violations
}

/// Links to a part of a document lead to one of its headings.
#[must_use]
pub fn document_anchors(documents: &BTreeMap<String, String>) -> Vec<String> {
    let anchors: BTreeMap<&str, Vec<String>> =
        documents.iter().map(|(document, text)| (document.as_str(), anchors(text))).collect();
    let mut violations = Vec::new();
    for (document, text) in documents {
        let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (index, line) in text.lines().enumerate() {
            for (path, anchor) in links(line).filter(|(_, anchor)| !anchor.is_empty()) {
                let target = if path.is_empty() { document.clone() } else { beside(folder, path) };
                let known = anchors.get(target.as_str());
                if known.is_some_and(|known| !known.iter().any(|one| one == anchor)) {
                    violations.push(format!("{document}:{}: {target} has no heading {anchor}", index + 1));
                }
            }
        }
    }
    violations
}

/// The links of a line to other files, each with the part behind `#`, as they are written.
fn links(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let linked = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let linked = linked.filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
    linked.map(|link| link.split_once('#').unwrap_or((link, "")))
}

/// The path that a document in `folder` writes so.
fn beside(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// What headings are linked by: letters, digits, `_` and `-`, in lower case, with a `-` for each blank.
fn anchors(text: &str) -> Vec<String> {
    let mut is_fenced = false;
    let mut anchors = Vec::new();
    for line in text.lines() {
        is_fenced ^= line.trim_start().starts_with("```");
        if !is_fenced && line.starts_with('#') {
            let kept = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            anchors.push(kept.chars().filter(|one| one.is_alphanumeric() || "_-".contains(*one)).collect());
        }
    }
    anchors
}

/// Prose is wrapped; tables and what is fenced or indented as code are as wide as they must be.
#[must_use]
pub fn document_widths(documents: &BTreeMap<String, String>) -> Vec<String> {
    const WIDTH: usize = 120;
    let mut violations = Vec::new();
    for (document, text) in documents {
        let mut is_fenced = false;
        for (index, line) in text.lines().enumerate() {
            is_fenced ^= line.trim_start().starts_with("```");
            let is_prose = !is_fenced && !line.starts_with("    ") && !line.trim_start().starts_with('|');
            let width = line.chars().count();
            if is_prose && width > WIDTH && line.contains(' ') {
                violations.push(format!("{document}:{}: {width} columns, at most {WIDTH}", index + 1));
            }
        }
    }
    violations
}

fn looks_like_path(word: &str, paths: &[String]) -> bool {
    const ENDINGS: &[&str] =
        &[".rs", ".md", ".toml", ".c", ".cpp", ".h", ".hpp", ".sh", ".py", ".yml", ".yaml"];
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-".contains(character);
    if !word.chars().all(plain)
        || word.starts_with(['/', '-'])
        || word.starts_with("target/")
        || word.starts_with("..")
    {
        return false;
    }
    let is_file = ENDINGS.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending));
    let is_ours = word.split_once('/').is_some_and(|(first, _)| paths.iter().any(|known| known == first));
    is_file || is_ours
}
