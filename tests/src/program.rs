//! Compiles the programs of `c/` and runs them, under limits and with a deadline.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::library::{build_folder, preload};

/// The compiler must neither drop a pair of malloc and free nor know what the functions return.
const FLAGS: &[&str] = &["-O1", "-g", "-w", "-fno-builtin", "-pthread"];

/// Sets limits (`$1`), then replaces itself by the program (`$3…`) under the preload (`$2`), which the shell itself is not.
const LAUNCHER: &str = "ulimit -c 0; eval \"$1\" || exit 125; if [ -n \"$2\" ]; then export LD_PRELOAD=\"$2\"; fi; shift 2; exec \"$@\"";

/// A run of one program of `c/`, to be set up and started.
pub struct Program {
    executable: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    limits: String,
    preload: Option<PathBuf>,
    deadline: Duration,
}

/// What a program left behind.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit status.
    pub status: ExitStatus,
    /// All it wrote on stdout.
    pub stdout: String,
    /// All it wrote on stderr.
    pub stderr: String,
}

impl Program {
    /// Compiles `c/<file>`; with a `.cpp` ending as C++17. The executable is kept until the source or a header changes.
    ///
    /// # Panics
    /// When it does not compile.
    #[must_use]
    pub fn new(file: &str) -> Program {
        Program {
            executable: compile(file, "", &[]),
            arguments: Vec::new(),
            variables: Vec::new(),
            limits: String::new(),
            preload: preload().map(Path::to_path_buf),
            deadline: Duration::from_secs(110),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Program {
        self.arguments.push(argument.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Program {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a limit as the shell's `ulimit` does, before the program starts: `v` address space or `d` data, in MiB.
    #[must_use]
    pub fn limit(mut self, kind: char, mib: usize) -> Program {
        self.limits.push_str(&format!("ulimit -{kind} {} &&", mib * 1024));
        self
    }

    /// Runs under libc, whatever is tested.
    #[must_use]
    pub fn without_preload(mut self) -> Program {
        self.preload = None;
        self
    }

    /// Preloads another library behind the tested one.
    #[must_use]
    pub fn preload_behind(mut self, library: &Path) -> Program {
        let first = self.preload.map(|first| first.display().to_string() + ":").unwrap_or_default();
        self.preload = Some(PathBuf::from(first + &library.to_string_lossy()));
        self
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it cannot be started, or is not done by the deadline; it is killed then, with its children.
    #[must_use]
    pub fn run(self) -> Outcome {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(LAUNCHER).arg("sh").arg(self.limits + " :");
        command.arg(self.preload.unwrap_or_default()).arg(&self.executable).args(&self.arguments);
        for variable in ["LD_PRELOAD", "FAULTLESS", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"] {
            command.env_remove(variable);
        }
        command.envs(self.variables).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.process_group(0).spawn() {
            Ok(child) => child,
            Err(error) => panic!("cannot start /bin/sh: {error}"),
        };
        let stdout = read_in_background(child.stdout.take());
        let stderr = read_in_background(child.stderr.take());
        let status = wait(&mut child, self.deadline);
        let [stdout, stderr] = [stdout, stderr].map(|reader| reader.join().unwrap_or_default());
        match status {
            Some(status) => Outcome { status, stdout, stderr },
            None => {
                panic!("{} hangs (over {:?}); stderr: {stderr}", self.executable.display(), self.deadline)
            }
        }
    }

    /// Runs it and expects it to succeed, and to be silent but for what it cannot test on this machine.
    ///
    /// # Panics
    /// With what the program said, when it does not.
    pub fn passes(self) {
        let name = self.executable.file_name().unwrap_or_default().to_owned();
        let words = format!("{} {}", name.display(), self.arguments.join(" "));
        let outcome = self.run();
        assert!(
            outcome.status.success() && pass_on_skipped(&outcome.stdout) && outcome.stderr.is_empty(),
            "{words}: {}\n{}{}",
            outcome.status,
            outcome.stdout,
            outcome.stderr
        );
    }
}

/// Passes on what a program said that it cannot test on this machine; whether that was all that it said.
pub fn pass_on_skipped(stdout: &str) -> bool {
    let mut is_all = true;
    for line in stdout.lines() {
        match line.strip_prefix("skipped: ") {
            Some(reason) => faultless_skipped::skipped(reason),
            None => is_all = false,
        }
    }
    is_all
}

impl Outcome {
    /// The number of the signal it died of.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// Compiles `c/<file>` into a shared library and returns its path.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn shared_library(file: &str) -> PathBuf {
    compile(file, ".so", &["-shared", "-fPIC"])
}

/// The same of a C++ program that brings the C++ library inside.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn library_with_runtime(file: &str) -> PathBuf {
    compile(file, "-runtime.so", &["-shared", "-fPIC", "-static-libstdc++", "-static-libgcc"])
}

fn compile(file: &str, suffix: &str, more_flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let source = folder.join(file);
    let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let built = build_folder().join(stem + suffix);
    let mut sources = headers(&folder);
    sources.push(source.clone());
    if is_newer(&built, &sources) {
        return built;
    }
    let (variable, usual, standard) =
        if file.ends_with(".cpp") { ("CXX", "c++", "-std=gnu++17") } else { ("CC", "cc", "-std=gnu11") };
    let compiler = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    // Tests run at the same time: each writes a file of its own and renames it.
    let unfinished = built.with_extension(format!("{}-{:?}", std::process::id(), thread::current().id()));
    let mut words = compiler.split_whitespace();
    let output = Command::new(words.next().unwrap_or(usual))
        .args(words)
        .arg(standard)
        .args(FLAGS)
        .args(more_flags)
        .arg("-o")
        .args([&unfinished, &source])
        .arg("-ldl")
        .output();
    match output {
        Err(error) => panic!("cannot start the compiler {compiler}: {error} (install one or set {variable})"),
        Ok(output) if !output.status.success() => {
            panic!("{file} does not compile:\n{}", String::from_utf8_lossy(&output.stderr))
        }
        Ok(_) => {}
    }
    if let Err(error) = fs::rename(&unfinished, &built) {
        panic!("cannot put {} in place: {error}", built.display());
    }
    built
}

fn headers(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "h")).collect()
}

fn is_newer(built: &Path, sources: &[PathBuf]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    time(built)
        .is_some_and(|built| sources.iter().all(|source| time(source).is_some_and(|source| source < built)))
}

fn read_in_background(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is what there is to show.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits; at the deadline kills the child and all it started, and returns `None`.
fn wait(child: &mut Child, deadline: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < deadline => thread::sleep(Duration::from_millis(5)),
            _ => {
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                let _ = child.wait();
                return None;
            }
        }
    }
}
