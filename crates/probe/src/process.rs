//! A process that runs already, held by its directory in `/proc`, so that another one that gets its number later is
//! never mistaken for it.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use faultless_records::counters::Counters;
use faultless_records::status::number_of_field;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::Mode;

use crate::closed::{self, Access};
use crate::file_limit::{self, NO_MORE_FILES};
use crate::mapped_file;

/// A live process.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    name: String,
    start_ticks: u64,
    /// Opened once: reading through it fails when this process has ended, whoever has its number then.
    directory: OwnedFd,
}

/// Why a process, or something of it, cannot be seen; shown as one line with what would help.
#[derive(Debug)]
pub enum ProcessError {
    /// There is no process of this number.
    Missing(i32),
    /// It ended before or while it was looked at.
    Ended(i32),
    /// It is a thread of the kernel and has no memory of its own.
    KernelThread(i32, String),
    /// The number is that of a thread; the process has the second number.
    Thread(i32, i32),
    /// The kernel does not show this file of it to us.
    Denied {
        /// Its number.
        pid: i32,
        /// What was to be read, such as `smaps`.
        file: String,
    },
    /// No more files may be open.
    Files(i32),
    /// Anything else the kernel answered.
    System {
        /// Its number.
        pid: i32,
        /// What was to be read.
        file: String,
        /// The kernel's reason.
        error: io::Error,
    },
}

impl fmt::Display for ProcessError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(pid) => write!(
                out,
                "no process {pid} can be seen (in a container, use the number it has there; with hidepid, become its user or root)"
            ),
            Self::Ended(pid) => write!(out, "process {pid} has ended"),
            Self::KernelThread(pid, name) => {
                write!(out, "process {pid} ({name}) is a kernel thread: it has no memory of its own")
            }
            Self::Thread(thread, pid) => {
                write!(out, "{thread} is a thread of process {pid}: use --pid {pid}")
            }
            Self::Denied { pid, file } => {
                let access = if file == "mem" { Access::Memory } else { Access::Sight };
                let cure = closed::cure(*pid, access, "CAP_SYS_PTRACE");
                write!(out, "not permitted to read {file} of process {pid}{cure}")
            }
            Self::Files(pid) => write!(out, "process {pid} cannot be read, since {NO_MORE_FILES}"),
            Self::System { pid, file, error } => write!(out, "cannot read {file} of process {pid}: {error}"),
        }
    }
}

impl std::error::Error for ProcessError {}

impl Process {
    /// Takes hold of the process with this number.
    ///
    /// # Errors
    /// [`ProcessError`]: missing, ended (none of its threads lives, so it has no memory any more), a thread, or one of the
    /// kernel's.
    pub fn open(pid: i32) -> Result<Self, ProcessError> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory =
            nix::fcntl::open(Path::new(&format!("/proc/{pid}")), flags, Mode::empty()).map_err(|errno| {
                match errno {
                    Errno::ENOENT | Errno::ESRCH => ProcessError::Missing(pid),
                    errno => failure(pid, "its directory", errno.into()),
                }
            })?;
        let text = read_at(pid, &directory, "stat").map_err(|error| match error {
            // With hidepid=2 the directory of a process that is hidden can be held, and is empty.
            ProcessError::Ended(pid) => ProcessError::Missing(pid),
            error => error,
        })?;
        let stat = Counters::parse(&text).ok_or(ProcessError::Ended(pid))?;
        let name = String::from_utf8_lossy(stat.name).into_owned();
        if stat.is_kernel_thread() {
            return Err(ProcessError::KernelThread(pid, name));
        }
        let process = Self { pid, name, start_ticks: stat.start_ticks, directory };
        if stat.first_thread_has_ended() && process.living_thread().is_none() {
            return Err(ProcessError::Ended(pid));
        }
        match process.leader()? {
            leader if leader != pid => Err(ProcessError::Thread(pid, leader)),
            _ => Ok(process),
        }
    }

    /// Its number, as we see it.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its name when it was opened, at most 15 bytes.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name now, which an exec changes; that of when it was opened where it has ended.
    #[must_use]
    pub fn name_now(&self) -> String {
        let text = self.read("stat").unwrap_or_default();
        let name = Counters::parse(&text).map(|stat| String::from_utf8_lossy(stat.name).into_owned());
        name.unwrap_or_else(|| self.name.clone())
    }

    /// When it began, in clock ticks after boot.
    #[must_use]
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// The bytes of one of its files in `/proc/PID`.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn read(&self, file: &str) -> Result<Vec<u8>, ProcessError> {
        read_at(self.pid, &self.directory, &self.place_of(file))
    }

    /// The text of one of its files; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn text(&self, file: &str) -> Result<String, ProcessError> {
        self.read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Opens one of its files, to be read again and again.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn open_file(&self, file: &str) -> Result<File, ProcessError> {
        open_at(self.pid, &self.directory, &self.place_of(file), OFlag::O_RDONLY)
    }

    /// Where a link such as `exe` or `ns/pid` leads.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn link(&self, file: &str) -> Result<PathBuf, ProcessError> {
        readlinkat(&self.directory, &*self.place_of(file))
            .map(PathBuf::from)
            .map_err(|errno| failure(self.pid, file, errno.into()))
    }

    /// The numbers of its threads, ascending; without the first where that has ended before the others.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn threads(&self) -> Result<Vec<i32>, ProcessError> {
        let mut directory = self.open_directory("task")?;
        let mut threads: Vec<i32> = directory
            .iter()
            .filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok())
            .collect();
        threads.sort_unstable();
        if threads.len() > 1 && !self.lives("stat") {
            threads.retain(|thread| *thread != self.pid);
        }
        Ok(threads)
    }

    /// One of its directories, such as `fd`, to be listed.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub(crate) fn open_directory(&self, place: &str) -> Result<Dir, ProcessError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Dir::openat(&self.directory, &*self.place_of(place), flags, Mode::empty())
            .map_err(|errno| failure(self.pid, place, errno.into()))
    }

    /// Whether it still runs: any of its threads does.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.lives("stat") || self.living_thread().is_some()
    }

    /// Whether the thread that this `stat` is of has not ended, nor let go of its memory on its way there.
    fn lives(&self, stat: &str) -> bool {
        read_at(self.pid, &self.directory, stat)
            .is_ok_and(|text| Counters::parse(&text).is_some_and(|stat| !stat.first_thread_has_ended()))
    }

    /// Whether one of its threads is gone: it cannot be attached to, and the kernel says that that is forbidden.
    pub(crate) fn thread_has_ended(&self, thread: i32) -> bool {
        !self.lives(&format!("task/{thread}/stat"))
    }

    /// Another thread than the first that has not ended.
    fn living_thread(&self) -> Option<i32> {
        let threads = self.threads().unwrap_or_default().into_iter();
        threads.filter(|thread| *thread != self.pid).find(|thread| !self.thread_has_ended(*thread))
    }

    /// The place of a file in the directory: a first thread that has ended shows no memory, the others show it all.
    fn place_of<'file>(&self, file: &'file str) -> Cow<'file, str> {
        let is_of_all = file == "stat" || file.starts_with("task") || file.starts_with("map_files");
        if is_of_all || self.lives("stat") {
            return Cow::Borrowed(file);
        }
        self.living_thread().map_or(Cow::Borrowed(file), |thread| format!("task/{thread}/{file}").into())
    }

    /// An absolute path of its own file system, as a path of ours.
    fn path_in_root(&self, path: &Path) -> PathBuf {
        let mut whole = PathBuf::from(format!("/proc/{}", self.pid));
        whole.push(&*self.place_of("root"));
        whole.push(path.strip_prefix("/").unwrap_or(path));
        whole
    }

    /// The very file that it has mapped from `start` to `end`, which `path` in `maps` names.
    ///
    /// `map_files` reaches deleted and hidden files but wants CAP_CHECKPOINT_RESTORE; otherwise the path is opened in the
    /// process's own file system, and must lead to the same `inode`.
    ///
    /// # Errors
    /// [`ProcessError`]; one that says so when the file was deleted or replaced.
    pub fn open_mapped(&self, start: u64, end: u64, path: &[u8], inode: u64) -> Result<File, ProcessError> {
        let exact = format!("map_files/{start:x}-{end:x}");
        if let Ok(file) = open_at(self.pid, &self.directory, &exact, OFlag::O_RDONLY) {
            return Ok(file);
        }
        let shown = || String::from_utf8_lossy(path).into_owned();
        let path = PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
        let file = mapped_file::open_regular(&self.path_in_root(&path))
            .map_err(|error| failure(self.pid, &shown(), error))?;
        match file.metadata() {
            Ok(metadata) if metadata.ino() == inode => Ok(file),
            _ => Err(failure(
                self.pid,
                &shown(),
                io::Error::other("the file was replaced since it was mapped"),
            )),
        }
    }

    /// Its memory, to be read.
    ///
    /// # Errors
    /// [`ProcessError`]; needs the right to attach.
    pub fn memory(&self) -> Result<Memory, ProcessError> {
        Ok(Memory { pid: self.pid, file: self.open_file("mem")? })
    }

    /// The first thread of the process that `pid` belongs to.
    fn leader(&self) -> Result<i32, ProcessError> {
        let status = self.text("status")?;
        Ok(number_of_field(&status, "Tgid").unwrap_or(self.pid))
    }
}

/// The memory of a process, read-only.
#[derive(Debug)]
pub struct Memory {
    pid: i32,
    file: File,
}

impl Memory {
    /// Fills `buffer` from `address` on.
    ///
    /// # Errors
    /// [`ProcessError`], also where nothing is mapped; the buffer then holds anything.
    pub fn read_at(&self, address: u64, buffer: &mut [u8]) -> Result<(), ProcessError> {
        self.file.read_exact_at(buffer, address).map_err(|error| match error.kind() {
            // The kernel reads nothing from a process without memory: it has ended.
            io::ErrorKind::UnexpectedEof => ProcessError::Ended(self.pid),
            _ => failure(self.pid, "mem", error),
        })
    }
}

fn open_at(pid: i32, directory: &OwnedFd, file: &str, flags: OFlag) -> Result<File, ProcessError> {
    openat(directory, std::ffi::OsStr::from_bytes(file.as_bytes()), flags | OFlag::O_CLOEXEC, Mode::empty())
        .map(File::from)
        .map_err(|errno| failure(pid, file, errno.into()))
}

fn read_at(pid: i32, directory: &OwnedFd, file: &str) -> Result<Vec<u8>, ProcessError> {
    let mut bytes = Vec::new();
    open_at(pid, directory, file, OFlag::O_RDONLY)?
        .read_to_end(&mut bytes)
        .map_err(|error| failure(pid, file, error))?;
    Ok(bytes)
}

fn failure(pid: i32, file: &str, error: io::Error) -> ProcessError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ESRCH) => ProcessError::Ended(pid),
        // A directory of a process that has ended is empty.
        Some(Errno::ENOENT) if !Path::new(&format!("/proc/{pid}/stat")).exists() => ProcessError::Ended(pid),
        _ if file_limit::is_reached(&error) => ProcessError::Files(pid),
        Some(Errno::EACCES | Errno::EPERM) => ProcessError::Denied { pid, file: file.to_owned() },
        _ => ProcessError::System { pid, file: file.to_owned(), error },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nix::libc;
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("100").stdout(Stdio::null()).spawn().unwrap()
    }

    fn own() -> Process {
        Process::open(std::process::id().cast_signed()).unwrap()
    }

    #[test]
    fn this_process_is_read_by_its_directory() {
        let own = own();
        assert!(own.text("maps").unwrap().contains("[stack]"));
        assert!(own.threads().unwrap().contains(&own.pid()) && own.is_alive());
        assert_eq!(own.link("exe").unwrap(), std::env::current_exe().unwrap());
        assert!(own.path_in_root(Path::new("/proc/self")).exists());
        let known = *b"known bytes";
        let mut seen = [0; 11];
        own.memory().unwrap().read_at(known.as_ptr().addr() as u64, &mut seen).unwrap();
        assert_eq!(seen, known);
        let error = own.memory().unwrap().read_at(8, &mut seen).unwrap_err();
        assert!(matches!(error, ProcessError::System { .. }), "{error}");
    }

    #[test]
    fn a_process_that_ends_is_noticed_and_its_number_means_nothing_more() {
        let mut child = sleeper();
        let pid = child.id().cast_signed();
        let process = Process::open(pid).unwrap();
        child.kill().unwrap();
        // A zombie first: its memory is gone already.
        while process.is_alive() {
            std::thread::yield_now();
        }
        assert!(matches!(Process::open(pid), Err(ProcessError::Ended(_))));
        child.wait().unwrap();
        assert!(matches!(process.read("maps"), Err(ProcessError::Ended(_))));
        assert!(matches!(Process::open(pid), Err(ProcessError::Missing(_))));
    }

    /// What `leaderless` has at the same address as we.
    static KNOWN: [u8; 11] = *b"known bytes";

    /// A process whose first thread has ended while another waits for the end of the pipe.
    pub(crate) fn leaderless() -> (Process, OwnedFd) {
        extern "C" fn wait(pipe: *mut libc::c_void) -> *mut libc::c_void {
            let mut byte = 0_u8;
            // SAFETY: system calls; one byte is read into a place for it.
            unsafe {
                libc::read(pipe.addr() as i32, (&raw mut byte).cast(), 1);
                libc::_exit(0)
            }
        }
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        // SAFETY: the child starts a thread, which libc's fork allows it, and ends its first one; nothing of it returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; the attributes may be null, and the argument is a number.
            unsafe {
                // Else two of them may hold each other's pipe open, and wait for each other for ever.
                let others = (3..1024).filter(|number| *number != read.as_raw_fd());
                others.for_each(|number| _ = libc::close(number));
                let mut thread = std::mem::zeroed();
                let pipe = std::ptr::without_provenance_mut(read.as_raw_fd() as usize);
                libc::pthread_create(&raw mut thread, std::ptr::null(), wait, pipe);
                libc::syscall(libc::SYS_exit, 0);
            }
        }
        let process = Process::open(pid).unwrap();
        while process.lives("stat") {
            std::thread::yield_now();
        }
        (process, write)
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_read_through_another_until_the_last_ends() {
        let (seen_before, pipe) = leaderless();
        let process = Process::open(seen_before.pid()).unwrap();
        let threads = process.threads().unwrap();
        assert!(threads.len() == 1 && threads[0] != process.pid(), "{threads:?}");
        for process in [&seen_before, &process] {
            assert!(process.is_alive() && process.text("maps").unwrap().contains("[stack]"));
            assert_eq!(process.link("exe").unwrap(), std::env::current_exe().unwrap());
            assert!(process.path_in_root(Path::new("/proc/self")).exists());
            let mut seen = [0; 11];
            process.memory().unwrap().read_at(KNOWN.as_ptr().addr() as u64, &mut seen).unwrap();
            assert_eq!(seen, KNOWN);
        }
        let listed = crate::process_list::Candidate::read(process.pid());
        assert!(listed.is_some_and(|listed| listed.name == process.name()));
        match crate::standstill::Standstill::begin(&process) {
            Ok(standstill) => assert_eq!(standstill.moving_threads(), 0),
            Err(error) => faultless_skipped::skipped(format!("nobody may trace here: {error}")),
        }
        drop(pipe);
        while process.is_alive() {
            std::thread::yield_now();
        }
        assert!(matches!(Process::open(process.pid()), Err(ProcessError::Ended(_))));
        // SAFETY: a null status is not written.
        let waited = unsafe { libc::waitpid(process.pid(), std::ptr::null_mut(), libc::__WALL) };
        assert_eq!(waited, process.pid());
    }

    #[test]
    fn numbers_that_are_no_process_are_named() {
        assert!(matches!(Process::open(i32::MAX), Err(ProcessError::Missing(_))));
        assert!(matches!(Process::open(-1), Err(ProcessError::Missing(_))));
        let own = own();
        let (send, receive) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = wait.recv();
        });
        let error = Process::open(receive.recv().unwrap()).unwrap_err();
        drop(done);
        thread.join().unwrap();
        assert!(matches!(error, ProcessError::Thread(_, pid) if pid == own.pid()), "{error}");
    }

    #[test]
    fn a_mapped_file_is_the_one_that_was_mapped() {
        let own = own();
        let maps = own.text("maps").unwrap();
        let program = std::env::current_exe().unwrap();
        let line = maps.lines().find(|line| line.ends_with(&*program.to_string_lossy())).unwrap();
        let range = line.split(' ').next().unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let parse = |text| u64::from_str_radix(text, 16).unwrap();
        let inode = std::fs::metadata(&program).unwrap().ino();
        let bytes = program.as_os_str().as_bytes();
        assert!(own.open_mapped(parse(start), parse(end), bytes, inode).is_ok());
        assert!(own.open_mapped(1, 2, bytes, inode).is_ok());
        let error = own.open_mapped(1, 2, bytes, inode + 1).unwrap_err();
        assert!(error.to_string().ends_with("was replaced since it was mapped"), "{error}");
        let pipe = std::env::temp_dir().join(format!("faultless-replaced-{}", own.pid()));
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let error = own.open_mapped(1, 2, pipe.as_os_str().as_bytes(), inode).unwrap_err();
        std::fs::remove_file(&pipe).unwrap();
        assert!(error.to_string().ends_with("it is no regular file"), "{error}");
    }
}
