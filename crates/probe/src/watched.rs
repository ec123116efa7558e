//! One process that is looked at again and again, through descriptors that stay open.
//!
//! A look reads `stat`, through one system call; `status` for swap and the peak, and `smaps_rollup` for exact sizes come rarely, because
//! the second makes the process wait while its mappings are walked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use faultless_records::counters::{Counters, pages_of_statm};
use faultless_records::recording::Sample;
use faultless_records::status;

use crate::clock;
use crate::file_limit;
use crate::process::{Process, ProcessError};
use crate::process_files;

/// Bytes of `stat` are under 400.
const ROOM: usize = 4096;
/// Bytes of `status` are under 2,000, but for the user's groups: some thousands have room.
const STATUS_ROOM: usize = 32 * 1024;

/// What a look is to include.
#[derive(Debug, Clone, Copy, Default)]
pub struct Depth {
    /// Memory in swap, and the largest resident set so far.
    pub status: bool,
    /// Exact resident set and its share, from `smaps_rollup`.
    pub rollup: bool,
}

/// What became of the process since the look before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Another program, by this name.
    Exec(String),
    /// Another name; whether another program, too, is not to be seen.
    Rename(String),
}

/// What a look showed.
#[derive(Debug, Clone)]
pub struct Look {
    /// The figures; `t` and `process` are left to the caller.
    pub sample: Sample,
    /// Whether it has ended and only waits for its parent to take notice: these are its last figures.
    pub is_ended: bool,
    /// What became of it.
    pub change: Option<Change>,
    /// Time that reading `smaps_rollup` took, in s; none where it was not read.
    pub rollup_s: Option<f64>,
}

/// The process.
#[derive(Debug)]
pub struct Watched {
    process: Process,
    stat: File,
    name: Vec<u8>,
    stack_start: u64,
    parent: i32,
    ticks_per_s: f64,
    page_bytes: u64,
}

impl Watched {
    /// Takes hold of the process with this number.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn open(pid: i32) -> Result<Self, ProcessError> {
        let process = Process::open(pid)?;
        let stat = process.open_file("stat")?;
        if file_limit::is_beyond(&stat) {
            return Err(ProcessError::Files(pid));
        }
        let mut watched = Self {
            stat,
            name: Vec::new(),
            stack_start: 0,
            parent: 0,
            ticks_per_s: clock::ticks_per_s(),
            page_bytes: process_files::page_bytes(),
            process,
        };
        watched.look(Depth::default())?;
        Ok(watched)
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its parent's number at the last look.
    #[must_use]
    pub fn parent(&self) -> i32 {
        self.parent
    }

    /// Its name at the last look.
    #[must_use]
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Its command line, the words apart by blanks, at most 4 KiB of it; empty where it is not to be seen.
    #[must_use]
    pub fn command(&self) -> String {
        let mut bytes = [0; ROOM];
        let read = self.process.open_file("cmdline").ok().and_then(|file| file.read_at(&mut bytes, 0).ok());
        let words = bytes[..read.unwrap_or(0)].split(|byte| *byte == 0);
        let words: Vec<_> = words.map(String::from_utf8_lossy).filter(|word| !word.is_empty()).collect();
        words.join(" ")
    }

    /// Looks at it now.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] when nothing is left of it.
    pub fn look(&mut self, depth: Depth) -> Result<Look, ProcessError> {
        let mut bytes = [0; ROOM];
        let text = self.read(&self.stat, "stat", &mut bytes)?;
        let counters = Counters::parse(text).ok_or(ProcessError::Ended(self.process.pid()))?;
        let is_ended = counters.is_ended();
        let mut sample = self.sample(&counters);
        let change = if is_ended { None } else { self.change(&counters) };
        if is_ended {
            // It may have become another program since, and ended before we looked.
            self.name.clear();
            self.name.extend_from_slice(counters.name);
        }
        self.parent = counters.parent;
        if !is_ended && counters.first_thread_has_ended() {
            (sample.vsize_bytes, sample.rss_bytes) = self.sizes_of_other_thread();
        }
        if depth.status && !is_ended {
            self.add_status(&mut sample);
        }
        let rollup_s = if depth.rollup && !is_ended { self.add_rollup(&mut sample) } else { None };
        sample.lost_pss = depth.rollup && rollup_s.is_none();
        Ok(Look { sample, is_ended, change, rollup_s })
    }

    /// Whether `smaps_rollup` may be read.
    ///
    /// # Errors
    /// [`ProcessError`] with what would help.
    pub fn may_read_rollup(&self) -> Result<(), ProcessError> {
        self.process.open_file("smaps_rollup").map(drop)
    }

    fn read<'buffer>(
        &self,
        file: &File,
        name: &str,
        bytes: &'buffer mut [u8],
    ) -> Result<&'buffer [u8], ProcessError> {
        let pid = self.process.pid();
        match file.read_at(bytes, 0) {
            Ok(0) => Err(ProcessError::Ended(pid)),
            Ok(length) => Ok(&bytes[..length]),
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Err(ProcessError::Ended(pid)),
            Err(error) => Err(ProcessError::System { pid, file: name.into(), error }),
        }
    }

    fn sample(&self, counters: &Counters<'_>) -> Sample {
        let has_memory = !counters.first_thread_has_ended();
        Sample {
            vsize_bytes: has_memory.then_some(counters.vsize_bytes),
            rss_bytes: has_memory.then_some(counters.rss_pages.saturating_mul(self.page_bytes)),
            threads: counters.threads,
            minor_faults: counters.minor_faults,
            major_faults: counters.major_faults,
            children_minor_faults: counters.children_minor_faults,
            children_major_faults: counters.children_major_faults,
            user_s: counters.user_ticks as f64 / self.ticks_per_s,
            system_s: counters.system_ticks as f64 / self.ticks_per_s,
            children_user_s: counters.children_user_ticks as f64 / self.ticks_per_s,
            children_system_s: counters.children_system_ticks as f64 / self.ticks_per_s,
            ..Sample::default()
        }
    }

    /// A new program gets a stack at another place; where we may not see the place, only the name tells.
    fn change(&mut self, counters: &Counters<'_>) -> Option<Change> {
        // A stack that had no place before is that of an exec which was under way at the look before.
        let is_first = self.name.is_empty() || (self.stack_start <= 1 && counters.stack_start > 1);
        let has_moved =
            counters.stack_start != self.stack_start && counters.stack_start > 1 && self.stack_start > 1;
        let is_renamed = counters.name != self.name;
        if counters.stack_start > 1 {
            self.stack_start = counters.stack_start;
        }
        if is_renamed {
            self.name.clear();
            self.name.extend_from_slice(counters.name);
        }
        let name = || String::from_utf8_lossy(counters.name).into_owned();
        match () {
            () if is_first => None,
            () if has_moved => Some(Change::Exec(name())),
            () if is_renamed => Some(Change::Rename(name())),
            () => None,
        }
    }

    /// Those that another thread shows, where the first has ended.
    fn sizes_of_other_thread(&self) -> (Option<u64>, Option<u64>) {
        let text = self.process.read("statm").unwrap_or_default();
        let sizes = pages_of_statm(&text).filter(|(pages, _)| *pages > 0);
        let bytes = |pages: u64| pages.saturating_mul(self.page_bytes);
        (sizes.map(|(all, _)| bytes(all)), sizes.map(|(_, resident)| bytes(resident)))
    }

    /// Read once a second at most: an open file for each process would take a third of those that may be open.
    fn add_status(&self, sample: &mut Sample) {
        let Ok(status) = self.process.open_file("status") else { return };
        let mut bytes = [0; STATUS_ROOM];
        let Ok(text) = self.read(&status, "status", &mut bytes) else { return };
        let text = String::from_utf8_lossy(text);
        sample.swap_bytes = status::bytes_of_field(&text, "VmSwap");
        sample.peak_rss_bytes = status::bytes_of_field(&text, "VmHWM");
    }

    /// The file is opened anew each time, because a descriptor stays with the program before an exec.
    fn add_rollup(&self, sample: &mut Sample) -> Option<f64> {
        let begun = clock::monotonic_ns();
        let text = self.process.text("smaps_rollup").ok()?;
        let bytes = |name: &str| status::bytes_of_field(&text, name);
        sample.pss_bytes = bytes("Pss");
        sample.rss_bytes = bytes("Rss").or(sample.rss_bytes);
        sample.swap_bytes = bytes("Swap").or(sample.swap_bytes);
        sample.pss_bytes?;
        Some((clock::monotonic_ns() - begun) as f64 / 1e9)
    }
}

/// Whether the kernel no longer knows the process.
#[must_use]
pub fn is_gone(error: &ProcessError) -> bool {
    matches!(error, ProcessError::Ended(_) | ProcessError::Missing(_))
        || matches!(error, ProcessError::System { error, .. } if error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::process::{Child, Command, Stdio};

    fn number(pid: u32) -> i32 {
        i32::try_from(pid).unwrap()
    }

    fn until(mut is_so: impl FnMut() -> bool) {
        let end = clock::monotonic_ns() + 20_000_000_000;
        while !is_so() {
            assert!(clock::monotonic_ns() < end, "it took too long");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// A shell that does `work` once it is told to; our own memory is other tests', too.
    struct Shell(Child);

    impl Shell {
        fn waiting_to(work: &str) -> Self {
            let script = format!("read line; {work}; echo done; read line");
            let command = ["-c", &script];
            let pipes = (Stdio::piped(), Stdio::piped());
            Self(Command::new("sh").args(command).stdin(pipes.0).stdout(pipes.1).spawn().unwrap())
        }

        fn work(&mut self) {
            self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            let mut line = [0; 5];
            self.0.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
            assert_eq!(&line, b"done\n");
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    const TAKE_64_MIB: &str = "text=$(head -c 67108864 /dev/zero | tr '\\0' .)";

    #[test]
    fn figures_grow_as_memory_is_touched() {
        let mut shell = Shell::waiting_to(TAKE_64_MIB);
        let mut watched = Watched::open(number(shell.0.id())).unwrap();
        until(|| watched.look(Depth::default()).is_ok() && watched.name() == "sh");
        let before = watched.look(Depth { status: true, rollup: true }).unwrap();
        shell.work();
        let after = watched.look(Depth { status: true, rollup: true }).unwrap();
        let grown = |figure: fn(&Sample) -> Option<u64>| {
            figure(&after.sample).unwrap().saturating_sub(figure(&before.sample).unwrap())
        };
        let has_grown = |figure| grown(figure) >= 60 << 20;
        assert!(has_grown(|sample| sample.rss_bytes), "{before:?} {after:?}");
        assert!(has_grown(|sample| sample.pss_bytes), "{before:?} {after:?}");
        assert!(has_grown(|sample| sample.vsize_bytes), "{before:?} {after:?}");
        assert!(after.sample.vsize_bytes > after.sample.rss_bytes);
        assert!(after.sample.minor_faults > before.sample.minor_faults);
        assert!(after.sample.swap_bytes.is_some() && after.rollup_s.is_some_and(|time| time > 0.0));
    }

    #[test]
    fn memory_that_was_given_back_before_the_look_is_in_the_peak() {
        let mut shell = Shell::waiting_to(&format!("{TAKE_64_MIB}; text="));
        let mut watched = Watched::open(number(shell.0.id())).unwrap();
        shell.work();
        let sample = watched.look(Depth { status: true, rollup: false }).unwrap().sample;
        assert!(sample.peak_rss_bytes >= Some(60 << 20), "{sample:?}");
        assert!(sample.rss_bytes.is_some_and(|rss| rss < 60 << 20), "{sample:?}");
        assert_eq!(
            watched.look(Depth::default()).unwrap().sample.peak_rss_bytes,
            None,
            "as swap, it is read now and then"
        );
    }

    #[test]
    fn who_ended_before_the_first_look_has_a_name_all_the_same() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let mut watched = Watched::open(number(child.id())).unwrap();
        until(|| watched.look(Depth::default()).is_ok() && watched.name() == "sleep");
        child.kill().unwrap();
        watched.name.clear();
        until(|| watched.look(Depth::default()).unwrap().is_ended);
        assert_eq!(watched.name(), "sleep");
        child.wait().unwrap();
    }

    #[test]
    fn who_became_another_program_and_ended_before_the_next_look_has_its_name() {
        let mut child =
            Command::new("sh").args(["-c", "read x; exec true"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut watched = Watched::open(number(child.id())).unwrap();
        until(|| watched.look(Depth::default()).is_ok() && watched.name() == "sh");
        let pid = child.id();
        drop(child.stdin.take());
        until(|| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z "));
        assert!(watched.look(Depth::default()).unwrap().is_ended);
        assert_eq!(watched.name(), "true");
        child.wait().unwrap();
    }

    #[test]
    fn another_program_is_noticed_and_so_is_the_end() {
        let mut child =
            Command::new("sh").args(["-c", "read x; exec sleep 100"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut watched = Watched::open(number(child.id())).unwrap();
        // A parent may go on before the new program has its words.
        until(|| watched.command().starts_with("sh -c read x"));
        watched.look(Depth::default()).unwrap();
        assert_eq!(watched.name(), "sh");
        drop(child.stdin.take());
        let mut change = None;
        until(|| {
            change = change.take().or(watched.look(Depth::default()).unwrap().change);
            change.is_some()
        });
        assert_eq!(change, Some(Change::Exec("sleep".into())));

        child.kill().unwrap();
        let mut last = None;
        until(|| {
            let look = watched.look(Depth { status: true, rollup: true }).unwrap();
            let is_ended = look.is_ended;
            last = Some(look);
            is_ended
        });
        let last = last.unwrap().sample;
        assert!(last.minor_faults > 0 && last.rss_bytes.is_none() && last.swap_bytes.is_none());
        child.wait().unwrap();
        assert!(is_gone(&watched.look(Depth::default()).unwrap_err()));
    }
}
