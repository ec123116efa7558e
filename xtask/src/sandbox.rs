//! A private folder for one program, and commands that run in it with and without the library.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::failure::{At, Failure, Result, wrong};
use crate::job::Job;

/// A user of this machine.
#[derive(Clone, Copy)]
pub struct User {
    id: u32,
    group: u32,
}

/// A private folder with a copy of the library in it.
pub struct Sandbox {
    folder: PathBuf,
    library: PathBuf,
    user: Option<User>,
    jobs: AtomicUsize,
}

impl Sandbox {
    /// Makes the folder `parent/name` and copies the library there, where any user can read it.
    pub fn new(parent: &Path, name: &str, library: &Path) -> Result<Self> {
        let folder = parent.join(name);
        fs::create_dir_all(&folder).at(&folder)?;
        let folder = folder.canonicalize().at(&folder)?;
        let copy = folder.join(library.file_name().unwrap_or_default());
        fs::copy(library, &copy).at(library)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).at(&copy)?;
        Ok(Self { folder, library: copy, user: None, jobs: AtomicUsize::new(0) })
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The library, as processes have it mapped.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Writes a file in the folder.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at(parent)?;
        }
        fs::write(&path, text).at(&path)?;
        Ok(path)
    }

    /// Makes a folder in the folder.
    pub fn make_folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(&path).at(&path)?;
        Ok(path)
    }

    /// From now on commands run as another user, who owns the folder.
    pub fn become_user(&mut self, user: User) -> Result<()> {
        chown(&self.folder, Some(user.id), Some(user.group)).at(&self.folder)?;
        self.user = Some(user);
        Ok(())
    }

    /// A command under the library.
    pub fn preloaded(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.plain(program);
        command.env("LD_PRELOAD", &self.library);
        command
    }

    /// A command as it is without the library.
    pub fn plain(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(&self.folder).env_remove("LD_PRELOAD").env("LC_ALL", "C.UTF-8");
        command.env("HOME", &self.folder).env("TMPDIR", &self.folder);
        if let Some(user) = self.user {
            command.uid(user.id).gid(user.group);
        }
        command
    }

    /// A job under the library.
    pub fn job(&self, program: impl AsRef<Path>) -> Job {
        Job::new(self.preloaded(program), self.next_files(), Some(self.library.clone()))
    }

    /// A job without the library, to compare with.
    pub fn plain_job(&self, program: impl AsRef<Path>) -> Job {
        Job::new(self.plain(program), self.next_files(), None)
    }

    fn next_files(&self) -> PathBuf {
        // ORDERING: Relaxed, the counter only makes names differ.
        self.folder.join(format!("job{}", self.jobs.fetch_add(1, Ordering::Relaxed)))
    }
}

/// Finds a program in `PATH`.
///
/// # Errors
/// [`Failure::Missing`], with the Debian package that has it.
pub fn tool(name: &str, package: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| Failure::Missing(format!("{name} is not installed (apt-get install {package})")))
}

/// Whether this process runs as root.
pub fn is_root() -> Result<bool> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).at(path)?;
    Ok(status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0")))
}

/// Finds a user by name.
pub fn user(name: &str) -> Result<User> {
    let path = Path::new("/etc/passwd");
    let users = fs::read_to_string(path).at(path)?;
    match find_user(&users, name) {
        Some(user) => Ok(user),
        None => wrong(format!("no user {name} in {}", path.display())),
    }
}

fn find_user(users: &str, name: &str) -> Option<User> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(User { id: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let users = "root:x:0:0::/root:/bin/sh\nroo:x:7:8::/:/bin/sh\n";
        assert_eq!(find_user(users, "roo").map(|user| (user.id, user.group)), Some((7, 8)));
        assert!(find_user(users, "ro").is_none());
    }
}
