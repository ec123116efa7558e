//! What `/proc` says about a running process tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Which programs of a process tree have been seen with the library mapped.
pub struct Watch {
    library: PathBuf,
    proven: BTreeSet<(u32, String)>,
}

impl Watch {
    /// Watches for the library at `library`.
    pub fn new(library: &Path) -> Self {
        Self { library: library.to_owned(), proven: BTreeSet::new() }
    }

    /// Looks at `root` and all its descendants once.
    pub fn look(&mut self, root: u32) {
        let mut waiting = vec![root];
        while let Some(process) = waiting.pop() {
            waiting.extend(children(process));
            let unproven = |name: &String| !self.proven.contains(&(process, name.clone()));
            let names: Vec<String> = names(process).into_iter().filter(unproven).collect();
            if !names.is_empty() && maps(process, &self.library) {
                self.proven.extend(names.into_iter().map(|name| (process, name)));
            }
        }
    }

    /// The names of the programs that had the library mapped.
    pub fn proven(&self) -> BTreeSet<String> {
        self.proven.iter().map(|(_, name)| name.clone()).collect()
    }
}

/// Whether the process has `file` mapped now.
pub fn maps(process: u32, file: &Path) -> bool {
    let maps = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let file = file.to_string_lossy();
    maps.lines().any(|line| line.ends_with(&*file))
}

/// The processes that any thread of `process` has started.
pub fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>()).collect()
}

/// What the process was started as (15 bytes of it) and the file name of its program.
fn names(process: u32) -> Vec<String> {
    let started_as = fs::read_to_string(format!("/proc/{process}/comm")).ok();
    let program = fs::read_link(format!("/proc/{process}/exe")).ok();
    let program = program.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    started_as.map(|name| name.trim_end().to_owned()).into_iter().chain(program).collect()
}
