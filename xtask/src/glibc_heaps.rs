//! `faultless heap` against other versions of glibc: a program runs under each version's own loader, and what the walk finds
//! is compared with what that version says of itself.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::arguments::Arguments;
use crate::failure::{At, Failure, Result, expect_equal, usage, wrong};
use crate::workspace::{TemporaryFolder, c_compiler, cargo, root, succeed, target};

/// Threads, blocks, largest block, survivors in percent, seed, and what else; see the program.
const CASES: &[&[&str]] = &[
    &["4", "20000", "300000", "10", "7"],
    &["0", "50000", "10000", "5", "3"],
    &["3", "5000", "2000000", "2", "9"],
    &["2", "30000", "4000", "50", "11", "sbrk"],
    &["40", "2000", "100000", "10", "5"],
];

/// How far a trim may be from what was predicted.
const TRIM_MARGIN: f64 = 0.02;

/// Folders looked through below the one that was named.
const DEPTH: usize = 5;

/// Runs the task: each folder holds an extracted libc, such as `dpkg-deb -x libc6_….deb FOLDER` makes it.
pub fn run(arguments: Arguments) -> Result<()> {
    let folders = arguments.words()?;
    if folders.is_empty() {
        return usage("name folders with an extracted libc each (dpkg-deb -x libc6_VERSION_ARCH.deb FOLDER)");
    }
    succeed(cargo().args(["build", "--package", "faultless-cli"]))?;
    let tool = target()?.join("debug/faultless");
    let programs = TemporaryFolder::new("glibc-heaps")?;
    let mut failed = 0;
    for folder in &folders {
        match check(Path::new(folder), &tool, &programs.path().join("survivors")) {
            Ok(line) => println!("{line}"),
            Err(failure) => {
                failed += 1;
                println!("{folder}: failed: {failure}");
            }
        }
    }
    if failed > 0 { wrong(format!("{failed} of {} versions failed", folders.len())) } else { Ok(()) }
}

fn check(folder: &Path, tool: &Path, program: &Path) -> Result<String> {
    let libc = find(folder, &|name| name == "libc.so.6", DEPTH)
        .ok_or_else(|| Failure::Missing(format!("no libc.so.6 in {}", folder.display())))?;
    let libraries = libc.parent().unwrap_or(folder);
    let is_loader = |name: &str| name.starts_with("ld-linux") && name.contains(".so.");
    let loader = find(libraries, &is_loader, 0)
        .or_else(|| find(folder, &is_loader, DEPTH))
        .ok_or_else(|| Failure::Missing(format!("no loader ld-linux…so in {}", folder.display())))?;
    compile(program, libraries, &libc, &loader)?;
    let mut version = String::new();
    let mut worst_trim = 0.0_f64;
    for case in CASES {
        let mut subject = Subject::start(&loader, libraries, program, case)?;
        let info = subject.heap(tool, &["--malloc-info"])?;
        // Up to 2.30 glibc indents some lines by tabs.
        let theirs: String =
            subject.tell("info")?.lines().map(|line| format!("{}\n", line.trim_start())).collect();
        let ours: String = info.lines().map(|line| format!("{}\n", line.trim_start())).collect();
        expect_equal(&format!("malloc_info of {case:?}"), &theirs, &ours)?;
        let report = subject.heap(tool, &["--json", "--stop"])?;
        version = text_of(&report, "glibc").unwrap_or_default();
        let threads: u64 = case[0].parse().unwrap_or(0);
        let caches = number_of(&report, "thread_caches");
        if caches != Some(threads + 1) {
            return wrong(format!("{case:?}: {caches:?} threads' caches were found of {}", threads + 1));
        }
        let predicted = number_of(&report, "returnable_bytes").unwrap_or(0) as f64;
        let answer = subject.tell("trim")?;
        let returned: f64 =
            answer.trim().strip_prefix("trimmed ").and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
        let error = (returned / predicted - 1.0).abs();
        if error.is_nan() || error > TRIM_MARGIN {
            return wrong(format!("{case:?}: a trim gave back {returned} bytes, {predicted} were predicted"));
        }
        worst_trim = worst_trim.max(error);
    }
    let cases = CASES.len();
    Ok(format!(
        "glibc {version}: malloc_info equal in {cases} of {cases} cases, all threads' caches found, trim off by at most {:.2} %",
        worst_trim * 100.0
    ))
}

/// The first file below `folder` with such a name.
fn find(folder: &Path, is_wanted: &dyn Fn(&str) -> bool, depth: usize) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let is_file = |path: &&PathBuf| {
        path.is_file() && path.file_name().is_some_and(|name| is_wanted(&name.to_string_lossy()))
    };
    entries.iter().find(is_file).cloned().or_else(|| {
        let folders = entries.iter().filter(|path| depth > 0 && path.is_dir() && !path.is_symlink());
        folders.into_iter().find_map(|path| find(path, is_wanted, depth - 1))
    })
}

/// Links the program against the very library: symbols of newer versions would not be found in it.
fn compile(program: &Path, libraries: &Path, libc: &Path, loader: &Path) -> Result<()> {
    let mut command = c_compiler();
    command.args(["-O1", "-w", "-pthread", "-nodefaultlibs", "-o"]).arg(program);
    command.arg(root().join("tests/c/heap_survivors.c"));
    command.args(["-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed"]);
    // A library of its own up to 2.33.
    let threads = libraries.join("libpthread.so.0");
    command.args(threads.exists().then_some(threads)).arg(libc).arg(loader).arg("-lgcc");
    succeed(&mut command)
}

/// The program, running under the other libc.
struct Subject {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Subject {
    fn start(loader: &Path, libraries: &Path, program: &Path, case: &[&str]) -> Result<Self> {
        let mut command = Command::new(loader);
        command.arg("--library-path").arg(libraries).arg(program).args(case);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().at(loader)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return wrong("no pipes to the program");
        };
        let mut subject = Self { child, input, output: BufReader::new(output) };
        match subject.line()?.starts_with("ready ") {
            true => Ok(subject),
            false => wrong("the program did not start under this libc"),
        }
    }

    fn tell(&mut self, what: &str) -> Result<String> {
        writeln!(self.input, "{what}").at(Path::new("the program"))?;
        let mut answer = String::new();
        loop {
            match self.line()?.as_str() {
                "done\n" => return Ok(answer),
                "" => return wrong("the program ended too early"),
                line => answer.push_str(line),
            }
        }
    }

    fn heap(&self, tool: &Path, options: &[&str]) -> Result<String> {
        let number = OsString::from(self.child.id().to_string());
        let output =
            Command::new(tool).arg("heap").args(options).arg("--pid").arg(number).output().at(tool)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => wrong(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).at(Path::new("the program"))?;
        Ok(line)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last value of a key in our own JSON, whose totals stand behind the arenas.
fn value_of<'text>(json: &'text str, key: &str) -> Option<&'text str> {
    let (_, after) = json.rsplit_once(&format!("\"{key}\": "))?;
    after.split([',', '\n', '}']).next()
}

fn number_of(json: &str, key: &str) -> Option<u64> {
    value_of(json, key)?.trim().parse().ok()
}

fn text_of(json: &str, key: &str) -> Option<String> {
    Some(value_of(json, key)?.trim().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_last_value_of_a_key() {
        let json = "{\n \"glibc\": \"2.31\",\n \"arenas\": [{\"returnable_bytes\": 1}],\n \"total\": {\"returnable_bytes\": 22\n}}";
        assert_eq!(number_of(json, "returnable_bytes"), Some(22));
        assert_eq!(text_of(json, "glibc").as_deref(), Some("2.31"));
        assert_eq!(number_of(json, "absent"), None);
    }
}
