//! All modules that were met, each opened once, and the names in them.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use faultless_records::perf_record::FileIdentity;
use object::read::ReadCache;

use crate::bare_name;
use crate::debug_info::{DebugInfo, Frame};
use crate::module::{Module, parse};
use crate::separate_debug::{self, Root};
use crate::symbol_table::{SymbolTable, demangled};

/// A file, as whoever found it says.
#[derive(Debug)]
pub struct Found {
    /// It, opened.
    pub file: File,
    /// Roots under which debug files are sought: the process's own file system, then ours.
    pub roots: Vec<Root>,
}

/// The modules by their places in this list.
#[derive(Default)]
pub struct Modules {
    list: Vec<Known>,
    places: HashMap<(String, Identity), usize>,
}

/// Part of a key: the bytes of a build id, or device and inode.
type Identity = Vec<u8>;

struct Known {
    path: String,
    module: Result<Arc<Module>, String>,
    roots: Vec<Root>,
    names: Option<Names>,
}

/// Read at the first question only: most modules of a process are never asked about.
struct Names {
    table: SymbolTable,
    debug: Option<DebugInfo>,
}

impl Modules {
    /// The place of the module that was mapped from this file; `find` opens it at the first meeting.
    pub fn place(
        &mut self,
        path: &str,
        identity: &FileIdentity,
        find: impl FnOnce() -> Result<Found, String>,
    ) -> usize {
        let key = (path.to_owned(), key(identity));
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let (module, roots) = match find() {
            Ok(found) => (Module::read(found.file).and_then(|module| check(module, identity)), found.roots),
            Err(trouble) => (Err(trouble), Vec::new()),
        };
        let place = self.list.len();
        self.list.push(Known { path: path.to_owned(), module: module.map(Arc::new), roots, names: None });
        self.places.insert(key, place);
        place
    }

    /// The module at a place; none when its file could not be read.
    #[must_use]
    pub fn module(&self, place: usize) -> Option<&Arc<Module>> {
        self.list.get(place)?.module.as_ref().ok()
    }

    /// Path, as the process saw it, and why its file could not be used.
    pub fn list(&self) -> impl Iterator<Item = (&str, Result<&Module, &str>)> {
        self.list.iter().map(|known| (known.path.as_str(), known.module.as_deref().map_err(String::as_str)))
    }

    /// What stands at an address of the module at a place, innermost first; empty when nothing is known.
    ///
    /// The address is the one that the linker gave ([`Module::code_address`]).
    pub fn frames(&mut self, place: usize, address: u64) -> Vec<Frame> {
        let Some(known) = self.list.get_mut(place) else { return Vec::new() };
        let Ok(module) = &known.module else { return Vec::new() };
        let names =
            known.names.get_or_insert_with(|| Names::read(module, Path::new(&known.path), &known.roots));
        let mut frames = names.debug.as_ref().map(|debug| debug.frames(address)).unwrap_or_default();
        let has_name = frames.last().is_some_and(|frame| frame.function.is_some());
        match names.table.function(address).filter(|_| !has_name) {
            None => {
                let symbol = names.table.function(address).map(demangled);
                frames.iter_mut().for_each(|frame| add_path(frame, symbol.as_deref()));
                frames
            }
            Some(name) => {
                let known = frames.into_iter().next_back();
                let (file, line) = known.map_or((None, None), |frame| (frame.file, frame.line));
                vec![Frame { function: Some(demangled(name)), file, line, is_inlined: false }]
            }
        }
    }
}

impl Names {
    fn read(module: &Module, path: &Path, roots: &[Root]) -> Self {
        let own = module.file().try_clone().ok().and_then(|file| Self::of_file(file, roots));
        let own = own.unwrap_or(Self { table: SymbolTable::default(), debug: None });
        if own.debug.is_some() {
            return own;
        }
        // What was split off has the full table, too.
        let split = separate_debug::find(module, path, roots).and_then(|file| Self::of_file(file, roots));
        match split {
            Some(split) if split.table.is_empty() => Self { table: own.table, debug: split.debug },
            Some(split) => split,
            None => own,
        }
    }

    fn of_file(file: File, roots: &[Root]) -> Option<Self> {
        let cache = ReadCache::new(file);
        let object = parse(&cache).ok()?;
        let open = |path: &Path| {
            // Written as `../../.dwz/…` or absolute; always below `usr/lib/debug`.
            let text = path.to_str()?;
            let tail = text.split_once(".dwz/")?.1;
            roots.iter().find_map(|root| root.open(&Path::new("usr/lib/debug/.dwz").join(tail)))
        };
        let debug = DebugInfo::read(&object, open);
        Some(Self { table: SymbolTable::read(&object), debug })
    }
}

/// The symbol is of the function that all others are inlined into.
fn add_path(frame: &mut Frame, symbol: Option<&str>) {
    let symbol = symbol.filter(|_| !frame.is_inlined);
    let full =
        frame.function.as_deref().and_then(|name| bare_name::with_path(name, symbol, frame.file.as_deref()));
    frame.function = full.or(frame.function.take());
}

/// What a file found by its path must be, when the kernel told its build id.
fn check(module: Module, identity: &FileIdentity) -> Result<Module, String> {
    match identity {
        FileIdentity::BuildId(expected) if !module.build_id.is_empty() && module.build_id != *expected => {
            Err("the file was replaced since it was mapped".into())
        }
        _ => Ok(module),
    }
}

fn key(identity: &FileIdentity) -> Identity {
    match identity {
        FileIdentity::BuildId(id) => id.clone(),
        FileIdentity::Inode { device: (major, minor), inode } => {
            [major.to_ne_bytes().as_slice(), &minor.to_ne_bytes(), &inode.to_ne_bytes()].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: FileIdentity = FileIdentity::Inode { device: (0, 0), inode: 0 };

    fn own(modules: &mut Modules, identity: &FileIdentity) -> usize {
        let path = std::env::current_exe().unwrap();
        let found = || {
            Ok(Found {
                file: File::open(&path).unwrap(),
                roots: vec![Root::new("/", |path| File::open(path))],
            })
        };
        modules.place(&path.to_string_lossy(), identity, found)
    }

    /// Address of a function of ours, as the linker gave it.
    fn linked_address(modules: &Modules, place: usize, name: &str) -> u64 {
        let file = modules.module(place).unwrap().file().try_clone().unwrap();
        let cache = ReadCache::new(file);
        let object = parse(&cache).unwrap();
        use object::{Object, ObjectSymbol};
        object
            .symbols()
            .find(|symbol| symbol.name().is_ok_and(|found| found.contains(name)))
            .unwrap()
            .address()
    }

    #[inline(never)]
    fn faultless_symbols_known_function(number: u64) -> u64 {
        std::hint::black_box(number) + 1
    }

    #[test]
    fn a_function_is_found_with_its_file_and_line() {
        assert_eq!(faultless_symbols_known_function(1), 2);
        let mut modules = Modules::default();
        let place = own(&mut modules, &UNKNOWN);
        let address = linked_address(&modules, place, "faultless_symbols_known_function");
        let frames = modules.frames(place, address);
        let outermost = frames.last().unwrap();
        let name = outermost.function.as_deref().unwrap();
        assert!(name.ends_with("::faultless_symbols_known_function"), "{name}");
        assert!(outermost.file.as_deref().is_some_and(|file| file.ends_with("modules.rs")), "{frames:?}");
        assert!(outermost.line.is_some() && !outermost.is_inlined);
    }

    #[test]
    fn where_debug_information_is_lines_alone_functions_have_their_paths_all_the_same() {
        let place = std::env::temp_dir().join(format!("faultless-lines-alone-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let (source, program) = (place.join("a.rs"), place.join("a"));
        let text = "mod shop {\n#[inline(never)]\npub fn load(into: *mut u64) {\nunsafe { into.write(7) } } }\nfn main() { let mut row = 0; shop::load(std::hint::black_box(&mut row)); std::hint::black_box(row); }\n";
        std::fs::write(&source, text).unwrap();
        let mut compiler = std::process::Command::new("rustc");
        compiler.args(["-C", "opt-level=3", "-C", "debuginfo=line-tables-only", "-o"]);
        assert!(compiler.arg(&program).arg(&source).status().unwrap().success());
        let mut modules = Modules::default();
        let found = || Ok(Found { file: File::open(&program).unwrap(), roots: Vec::new() });
        let module = modules.place("a", &UNKNOWN, found);
        let address = linked_address(&modules, module, "4shop4load");
        let frames = modules.frames(module, address);
        std::fs::remove_dir_all(&place).unwrap();
        let names: Vec<&str> = frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
        assert_eq!(names.last(), Some(&"a::shop::load"), "{frames:?}");
        let inlined = &names[..names.len() - 1];
        assert!(!inlined.is_empty() && inlined.iter().all(|name| name.starts_with("core::")), "{frames:?}");
    }

    #[test]
    fn a_file_with_another_build_id_is_refused() {
        let mut modules = Modules::default();
        let place = own(&mut modules, &FileIdentity::BuildId(vec![1, 2, 3]));
        let has_none = modules.module(place).is_some_and(|module| module.build_id.is_empty());
        let trouble = modules.list().next().unwrap().1.err().map(str::to_owned);
        assert!(has_none || trouble.is_some_and(|trouble| trouble.contains("was replaced")));
        assert!(has_none || modules.frames(place, 0).is_empty());
    }

    #[test]
    fn a_module_is_opened_once() {
        let mut modules = Modules::default();
        let place = own(&mut modules, &UNKNOWN);
        assert_eq!(own(&mut modules, &UNKNOWN), place);
        let gone = modules.place("/gone", &UNKNOWN, || Err("deleted".into()));
        assert_ne!(gone, place);
        assert!(modules.module(gone).is_none() && modules.frames(gone, 4).is_empty());
    }
}
