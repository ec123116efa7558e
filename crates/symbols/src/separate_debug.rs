//! Where debug information lies that was split off a program: by build id, or by the name in `.gnu_debuglink`.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use object::Object;
use object::read::ReadCache;

use crate::module::{Module, parse};

/// Where distributions put such files.
const PLACES: &[&str] = &["usr/lib/debug", "usr/local/lib/debug"];

/// A folder that stands for `/`, and how files below it are opened: whoever observes a process knows what its file system may hold in
/// their places.
#[derive(Debug, Clone)]
pub struct Root {
    folder: PathBuf,
    open: fn(&Path) -> io::Result<File>,
}

impl Root {
    /// A root and the function that opens what lies below it.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, open: fn(&Path) -> io::Result<File>) -> Self {
        Self { folder: folder.into(), open }
    }

    /// The file at a path relative to it.
    pub(crate) fn open(&self, path: &Path) -> Option<File> {
        (self.open)(&self.folder.join(path)).ok()
    }
}

/// The debug file of a module that is known by `path`, sought under each of these roots; only one that belongs to it.
#[must_use]
pub fn find(module: &Module, path: &Path, roots: &[Root]) -> Option<File> {
    let by_id = build_id_paths(&module.build_id);
    let mut by_id = roots.iter().flat_map(|root| by_id.iter().filter_map(|path| root.open(path)));
    if let Some(file) = by_id.find(|file| has_build_id(file, &module.build_id)) {
        return Some(file);
    }
    let (name, checksum) = module.debug_link.as_ref()?;
    let name = Path::new(std::str::from_utf8(name).ok()?).file_name()?;
    let folder = path.parent()?.strip_prefix("/").ok()?;
    let beside = [folder.join(name), folder.join(".debug").join(name)];
    let apart = PLACES.iter().map(|place| Path::new(place).join(folder).join(name));
    let by_link: Vec<PathBuf> = beside.into_iter().chain(apart).collect();
    let mut by_link = roots.iter().flat_map(|root| by_link.iter().filter_map(|path| root.open(path)));
    by_link.find(|file| {
        // The program itself, where the debug file has its name and lies in `.debug`.
        !are_one(file, module.file())
            && (has_build_id(file, &module.build_id) || checksum_of(file) == Some(*checksum))
    })
}

/// `usr/lib/debug/.build-id/ab/cdef….debug`.
fn build_id_paths(build_id: &[u8]) -> Vec<PathBuf> {
    let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Vec::new();
    };
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let file = format!(".build-id/{first:02x}/{rest}.debug");
    PLACES.iter().map(|place| Path::new(place).join(&file)).collect()
}

fn are_one(one: &File, other: &File) -> bool {
    let identity = |file: &File| file.metadata().ok().map(|of| (of.dev(), of.ino()));
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

fn has_build_id(file: &File, build_id: &[u8]) -> bool {
    let Ok(file) = file.try_clone() else { return false };
    let cache = ReadCache::new(file);
    let Ok(object) = parse(&cache) else { return false };
    !build_id.is_empty() && object.build_id().ok().flatten() == Some(build_id)
}

/// CRC-32 of the whole file, as `.gnu_debuglink` has it. Source: the polynomial of IEEE 802.3, reflected.
fn checksum_of(file: &File) -> Option<u32> {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |rest, _| if rest & 1 == 1 { rest >> 1 ^ 0xedb8_8320 } else { rest >> 1 })
    });
    let mut buffer = vec![0; 1 << 16];
    let (mut checksum, mut place) = (!0_u32, 0);
    loop {
        // Whoever asked for its build id has moved the place from which it would be read.
        let length = file.read_at(&mut buffer, place).ok()?;
        if length == 0 {
            return Some(!checksum);
        }
        place += length as u64;
        for byte in &buffer[..length] {
            checksum = checksum >> 8 ^ table[usize::from(checksum as u8 ^ byte)];
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn debug_files_are_sought_by_build_id() {
        let paths = build_id_paths(&[0xab, 0xcd, 0x01]);
        assert_eq!(paths[0], Path::new("usr/lib/debug/.build-id/ab/cd01.debug"));
        assert!(build_id_paths(&[]).is_empty());
    }

    #[test]
    fn a_debug_file_of_the_programs_own_name_is_found_and_not_the_program() {
        let place = std::env::temp_dir().join(format!("faultless-debuglink-{}", std::process::id()));
        std::fs::create_dir_all(place.join(".debug")).unwrap();
        let script = "echo 'int main(void) { return 0; }' > a.c && cc -g -o shop a.c \
            && objcopy --only-keep-debug shop .debug/shop && strip shop && objcopy --add-gnu-debuglink=.debug/shop shop";
        let status = Command::new("sh").args(["-c", script]).current_dir(&place).status().unwrap();
        assert!(status.success());
        let program = place.join("shop");
        let module = Module::read(File::open(&program).unwrap()).unwrap();
        let root = |open| [Root::new("/", open)];
        let found = find(&module, &program, &root(|path| File::open(path))).unwrap().metadata().unwrap();
        let refused = find(&module, &program, &root(|_| Err(io::ErrorKind::PermissionDenied.into())));
        assert!(refused.is_none(), "files are opened by whoever knows how, and in no other way");
        let wanted = std::fs::metadata(place.join(".debug/shop")).unwrap();
        std::fs::remove_dir_all(&place).unwrap();
        assert_eq!(found.ino(), wanted.ino());
    }

    /// Builds in a folder of its own a program whose debug information is split off, and finds that; whether it was found.
    fn finds_split_off(name: &str, script: &str) -> bool {
        let place = std::env::temp_dir().join(format!("faultless-{name}-{}", std::process::id()));
        std::fs::create_dir_all(place.join(".debug")).unwrap();
        let status = Command::new("sh").args(["-c", script]).current_dir(&place).status().unwrap();
        assert!(status.success());
        let program = place.join("shop");
        let module = Module::read(File::open(&program).unwrap()).unwrap();
        let found = find(&module, &program, &[Root::new("/", |path| File::open(path))]);
        let wanted = std::fs::metadata(place.join(".debug/shop")).unwrap();
        let is_found = found.is_some_and(|found| found.metadata().unwrap().ino() == wanted.ino());
        std::fs::remove_dir_all(&place).unwrap();
        is_found
    }

    #[test]
    fn a_debug_file_without_a_build_id_is_found_by_its_checksum_and_another_is_not() {
        let build = "echo 'int main(void) { return 0; }' > a.c && cc -g -Wl,--build-id=none -o shop a.c \
            && objcopy --only-keep-debug shop .debug/shop && strip shop && objcopy --add-gnu-debuglink=.debug/shop shop";
        assert!(finds_split_off("by-checksum", build));
        assert!(!finds_split_off("by-another-checksum", &format!("{build} && echo >> .debug/shop")));
    }

    #[test]
    fn checksums_are_those_of_the_linker() {
        let path = std::env::temp_dir().join(format!("faultless-checksum-{}", std::process::id()));
        std::fs::write(&path, "123456789").unwrap();
        let checksum = checksum_of(&File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(checksum, Some(0xcbf4_3926), "the check value of CRC-32");
    }
}
