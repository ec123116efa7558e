//! Where the tool may write: a cache that stays, and private directories that are removed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use faultless_records::preload_list::{self, refusal_of_option, refusal_of_preload};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;

use crate::file_limit::{self, NO_MORE_FILES};
use crate::left_behind;

/// How often a place may vanish that is being made. Some places (`/proc`) say that of each.
const TRIES: u32 = 20;

/// Others may read and enter: a command may change its user and must still load the library.
const DIRECTORY_MODE: u32 = 0o755;

/// Where temporary files go unless `TMPDIR` says otherwise.
const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];

/// Where files are memory; containers have little of it.
const SHARED_MEMORY: &str = "/dev/shm";

/// Room that leaves enough for those who need this place.
const PLENTY_BYTES: u64 = 512 << 20;

/// The cache of programs that run as root: root's home is closed to the users a service may change to.
const CACHE_OF_ROOT: &str = "/var/cache";

/// A directory of our own, removed with all its contents when dropped, or by the next run where we are killed.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
    /// Tells others that we live.
    _lock: File,
}

impl PrivateDirectory {
    /// Makes one in `TMPDIR`, or where that is not set in the first usual place that can hold a library.
    ///
    /// # Errors
    /// One line that says what was refused, why, and what to do.
    pub fn create() -> io::Result<Self> {
        let places: Vec<PathBuf> = match std::env::var_os("TMPDIR").filter(|place| !place.is_empty()) {
            Some(place) => vec![PathBuf::from(place)],
            None => TEMPORARY.iter().map(PathBuf::from).collect(),
        };
        let mut refusals = Vec::new();
        for place in places {
            match Self::create_in(&place) {
                Ok(directory) => return Ok(directory),
                // Another place would not help.
                Err(error) if file_limit::is_reached(&error) => return Err(io::Error::other(NO_MORE_FILES)),
                Err(error) => refusals.push(format!("{}: {error}", place.display())),
            }
        }
        Err(io::Error::other(format!(
            "no place for temporary files ({}); set TMPDIR to a writable directory",
            refusals.join("; ")
        )))
    }

    /// Makes one in memory where there is plenty of it for files, else as [`Self::create`]; not for libraries.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_in_memory() -> io::Result<Self> {
        let place = Path::new(SHARED_MEMORY);
        let has_room = |room: nix::sys::statvfs::Statvfs| {
            room.blocks_available().saturating_mul(room.fragment_size()) >= PLENTY_BYTES
        };
        if statvfs(place).is_ok_and(has_room)
            && let Ok(directory) = Self::make_below(place)
        {
            return Ok(directory);
        }
        Self::create()
    }

    fn create_in(place: &Path) -> io::Result<Self> {
        let place = fs::canonicalize(place)?;
        check_suits_preload(&place)?;
        Self::make_below(&place)
    }

    fn make_below(place: &Path) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        left_behind::remove_from(place);
        let mut tries = TRIES;
        loop {
            // ORDERING: Relaxed; only the uniqueness of the number matters.
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let path = place.join(format!("{}{}-{number}", left_behind::PREFIX, std::process::id()));
            let hold = || left_behind::hold(&path).inspect_err(|_| drop(fs::remove_dir(&path)));
            match make(&path).and_then(|()| hold()) {
                Ok(lock) => return Ok(Self { path, _lock: lock }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // Another run has just taken it for left behind.
                Err(error) if error.kind() == io::ErrorKind::NotFound && place.exists() && tries > 0 => {
                    tries -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The directory for files that processes may still need after the tool has gone; made if it is not there.
///
/// `$XDG_CACHE_HOME/faultless`, else `/var/cache/faultless` for root and `~/.cache/faultless` for others.
///
/// # Errors
/// When there is none that can hold a library.
pub fn cache_directory() -> io::Result<PathBuf> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let parent = given("XDG_CACHE_HOME")
        .or_else(|| geteuid().is_root().then(|| PathBuf::from(CACHE_OF_ROOT)))
        .or_else(|| given("HOME").map(|home| home.join(".cache")))
        .ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))?;
    let path = parent.join("faultless");
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&parent)?;
    match make(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check_suits_preload(&path)?;
    Ok(path)
}

/// Makes a directory that others may enter whatever the umask cuts off.
fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
}

/// A library can be preloaded from here, and report to here: paths are those of lists, and the loader maps code.
fn check_suits_preload(place: &Path) -> io::Result<()> {
    let path = place.as_os_str().as_bytes();
    if let Some(reason) = refusal_of_preload(path).or_else(|| refusal_of_option(path)) {
        return Err(io::Error::other(reason));
    }
    if statvfs(place)?.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(io::Error::other("it is mounted noexec, so no library can be loaded from it"));
    }
    Ok(())
}

/// What the system preloads into every program, as [`preload_value`] lists it. Source: ld.so(8), `/etc/ld.so.preload`.
#[must_use]
pub fn system_preload() -> String {
    preloads(&String::from_utf8_lossy(&fs::read("/etc/ld.so.preload").unwrap_or_default()))
}

/// The libraries that this text names, those that are there.
fn preloads(text: &str) -> String {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let files = lines.flat_map(preload_list::entries).filter(|entry| Path::new(entry).is_file());
    files.collect::<Vec<_>>().join(":")
}

/// The value of `LD_PRELOAD` with our library first and the user's own after it.
#[must_use]
pub fn preload_value(library: &Path, existing: Option<&OsString>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(existing) = existing.filter(|existing| !existing.is_empty()) {
        value.push(":");
        value.push(existing);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_preloads_is_read_without_comments_and_without_what_is_not_there() {
        assert_eq!(preloads("# /bin/sh\n/bin/sh:/no/such.so\t/bin/cat # x\n\n"), "/bin/sh:/bin/cat");
    }

    #[test]
    fn a_private_directory_goes_with_its_contents() {
        let directory = PrivateDirectory::create().unwrap();
        let path = directory.path().to_path_buf();
        fs::create_dir(path.join("inner")).unwrap();
        fs::write(path.join("inner/file"), "x").unwrap();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn a_place_that_a_preload_cannot_name_is_refused() {
        let directory = PrivateDirectory::create().unwrap();
        for (name, reason) in [("with space", "LD_PRELOAD"), ("with,comma", "FAULTLESS")] {
            let odd = directory.path().join(name);
            fs::create_dir(&odd).unwrap();
            let error = PrivateDirectory::create_in(&odd).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(PrivateDirectory::create_in(Path::new("/no/such/place")).is_err());
    }

    #[test]
    fn our_library_comes_before_the_users() {
        let library = Path::new("/c/libfaultless.so");
        assert_eq!(preload_value(library, None), "/c/libfaultless.so");
        assert_eq!(preload_value(library, Some(&OsString::new())), "/c/libfaultless.so");
        assert_eq!(preload_value(library, Some(&"libx.so".into())), "/c/libfaultless.so:libx.so");
    }
}
