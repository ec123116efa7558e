//! `faultless export`: what Prometheus scrapes and what node_exporter reads, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod exporter;
mod place;
mod running;
mod tool;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use exporter::{PATIENCE, SERVES, scrape, serve, serving, value, wait_for, wait_until};
use place::Place;
use running::{Running, is_so_within, send};
use tool::{after, assert_misused, assert_refused, errors, faultless, text};

/// A program that takes so many page faults for each line of its input.
struct Toucher {
    process: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Toucher {
    fn start(place: &Place, name: &str) -> Self {
        let source = r#"
            #include <stdio.h>
            #include <stdlib.h>
            #include <sys/mman.h>
            int main(void) {
                char line[32], *kept = malloc(3 << 20);
                while (kept && fgets(line, sizeof line, stdin)) {
                    long pages = atol(line);
                    char *p = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                    if (p == MAP_FAILED || madvise(p, pages * 4096, MADV_NOHUGEPAGE)) return 9;
                    for (long i = 0; i < pages; i++) p[i * 4096] = 1;
                    puts("done");
                    fflush(stdout);
                }
            }"#;
        let mut command = Command::new(place.compile(name, source, &["-O1", "-fno-builtin"]));
        let mut process = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let (input, output) = (process.0.stdin.take().unwrap(), process.0.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    fn touch(&mut self, pages: u32) {
        writeln!(self.input, "{pages}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    fn pid(&self) -> String {
        self.process.pid()
    }
}

/// A directory that looks like a control group of version 2.
struct Group(Place);

impl Group {
    fn create(label: &str) -> Self {
        let group = Self(Place::new(label));
        group.put("cgroup.procs", "");
        group.put("memory.current", "4096\n");
        group
    }

    fn put(&self, file: &str, text: &str) {
        // Whole or not at all, as the kernel's.
        fs::write(self.0.file("new"), text).unwrap();
        fs::rename(self.0.file("new"), self.0.file(file)).unwrap();
    }

    fn path(&self) -> String {
        self.0.file("")
    }

    fn memory(&self) -> String {
        let path = self.path();
        format!("faultless_cgroup_memory_bytes{{cgroup=\"{}\",kind=\"charged\"}}", path.trim_end_matches('/'))
    }
}

/// A command of user 65534 without capabilities, or of our own where we are not root; none where that cannot be.
fn without_privilege(words: &[&str]) -> Option<Command> {
    let become_nobody =
        ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"];
    let command = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    };
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Some(command(words));
    }
    let mut tried = command(&[&become_nobody[..], &[words[0], "--version"]].concat());
    let is_had = tried.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success());
    if !is_had {
        faultless_skipped::skipped(format_args!("setpriv cannot make us user 65534, or that may not run us"));
    }
    is_had.then(|| command(&[&become_nobody[..], words].concat()))
}

#[test]
fn a_share_that_can_no_longer_be_read_is_absent() {
    let place = Place::new("lost-pss");
    let source = "#include <sys/prctl.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>
        int main(int count, char **words) { char *held = memset(malloc(30 << 20), 1, 30 << 20);
            if (count > 1) return 0;
            getchar(); prctl(PR_SET_DUMPABLE, 0); free(held); getchar(); }";
    let program = place.compile("hidden", source, &["-O1", "-fno-builtin"]);
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
    let tool = place.file("faultless");
    fs::copy(env!("CARGO_BIN_EXE_faultless"), &tool).unwrap();
    let Some(mut command) = without_privilege(&[&program]) else { return };
    let mut process = Running::start(command.stdin(Stdio::piped()));
    let mut input = process.0.stdin.take().unwrap();
    let pid = process.pid();
    let name = format!("/proc/{pid}/comm");
    assert!(is_so_within(PATIENCE, || fs::read_to_string(&name).unwrap() == "hidden\n"));
    let words = [&[tool.as_str()], &SERVES[..], &["--pid", &pid, "--pss", "50ms", "--heap", "0"]].concat();
    let (_exporter, address, _said) = serving(without_privilege(&words).unwrap());
    let pss = r#"faultless_proportional_memory_bytes{name="hidden"}"#;
    wait_for(&address, pss, |bytes| bytes > 30e6);
    input.write_all(b"x").unwrap();
    let text = wait_until(&address, |text| value(text, pss).is_none());
    assert!(value(&text, r#"faultless_resident_memory_bytes{name="hidden"}"#).is_some(), "{text}");
}

#[test]
fn one_look_has_sizes_counts_and_the_heap_of_a_process() {
    let place = Place::new("once");
    let mut toucher = Toucher::start(&place, "toucher-once");
    toucher.touch(2_000);
    let output = faultless(&["export", "--once", "--map", "1m", "--pid", &toucher.pid()]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = text(&output);
    let of = |metric: &str| value(&text, metric).unwrap_or_else(|| panic!("{metric}: {text}"));
    assert_eq!(of("faultless_processes{name=\"toucher-once\"}"), 1.0);
    assert!(of("faultless_resident_memory_bytes{name=\"toucher-once\"}") > 8e6);
    assert!(of("faultless_proportional_memory_bytes{name=\"toucher-once\"}") > 8e6);
    assert!(of("faultless_page_faults_total{name=\"toucher-once\",kind=\"minor\"}") > 2_000.0);
    let used = of("faultless_heap_used_bytes{name=\"toucher-once\",allocator=\"glibc\"}");
    assert!((3e6..4e6).contains(&used), "{used}");
    assert_eq!(of("faultless_heap_arenas{name=\"toucher-once\",allocator=\"glibc\"}"), 1.0);
    assert!(of("faultless_mapped_resident_bytes{name=\"toucher-once\",kind=\"program\"}") > 0.0);
    // Each line is a comment or a metric with a number.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, number) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("faultless_") && number.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn a_name_steers_no_terminal_and_is_a_label_as_it_is() {
    let script = "printf 'a\\033[2Jb' > /proc/$$/comm; echo ready; read line";
    let named = Running::ready(Command::new("sh").args(["-c", script]).stdin(Stdio::piped()));
    let words = ["export", "--once", "--heap", "0", "--pid", &named.pid()];
    assert!(text(&faultless(&words).output().unwrap()).contains("{name=\"a\u{1b}[2Jb\"} 1\n"));
    let tool = format!("{} {}", env!("CARGO_BIN_EXE_faultless"), words.join(" "));
    let output = Command::new("script").args(["-qec", &tool, "/dev/null"]).stdin(Stdio::null()).output();
    let Ok(output) = output else { return faultless_skipped::skipped("script is not installed (bsdutils)") };
    assert!(text(&output).contains("{name=\"a\\u{1b}[2Jb\"} 1") && !text(&output).contains('\u{1b}'));
}

#[test]
fn counts_begin_where_the_looking_began_and_go_on_when_the_process_has_ended() {
    let place = Place::new("counts");
    let mut toucher = Toucher::start(&place, "toucher-counts");
    toucher.touch(5_000);
    let (_exporter, address) = serve(&["--name", "toucher-counts", "--heap", "0"]);
    let faults = "faultless_page_faults_total{name=\"toucher-counts\",kind=\"minor\"}";
    let before = wait_for(&address, faults, |_| true);
    assert!(before < 100.0, "{before}");
    toucher.touch(3_000);
    let after = wait_for(&address, faults, |faults| faults >= 3_000.0);
    assert!(after < 3_100.0, "{after}");
    drop(toucher);
    wait_for(&address, "faultless_processes{name=\"toucher-counts\"}", |processes| processes == 0.0);
    assert_eq!(wait_for(&address, "faultless_processes_ended_total{name=\"toucher-counts\"}", |_| true), 1.0);
    assert!(wait_for(&address, faults, |_| true) >= after);
}

#[test]
fn children_that_were_too_short_to_be_seen_count_for_who_waited_for_them() {
    let place = Place::new("children");
    let toucher = Toucher::start(&place, "toucher-short");
    drop(toucher);
    let input = place.write("input", "2000\n");
    let script = format!(
        "while read line; do for i in 1 2 3 4 5; do {} < {input} > {}; done; echo done; done",
        place.file("toucher-short"),
        place.file("output")
    );
    let mut shell = Command::new("sh");
    let mut shell = Running::start(shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()));
    let (mut input, output) = (shell.0.stdin.take().unwrap(), shell.0.stdout.take().unwrap());
    let mut output = BufReader::new(output);
    let mut work = || {
        writeln!(input).unwrap();
        output.read_line(&mut String::new()).unwrap();
    };
    work();
    let (_exporter, address) = serve(&["--pid", &shell.pid(), "--heap", "0"]);
    let faults = "faultless_children_page_faults_total{name=\"sh\",kind=\"minor\"}";
    assert_eq!(wait_for(&address, faults, |_| true), 0.0, "those before are no increase");
    work();
    let after = wait_for(&address, faults, |faults| faults >= 10_000.0);
    assert!(after < 12_000.0, "{after}");
    let time = "faultless_children_cpu_seconds_total{name=\"sh\",mode=\"user\"}";
    assert!(value(&scrape(&address), time).is_some());
}

#[test]
fn the_counts_of_a_process_stay_its_own_when_it_becomes_another_program() {
    let script = "true; read line; exec sleep 600";
    let mut child = Running::start(Command::new("sh").args(["-c", script]).stdin(Stdio::piped()));
    let pid = child.pid();
    let (_exporter, address) = serve(&["--pid", &pid, "--by", "process", "--heap", "0"]);
    let faults =
        |name: &str| format!("faultless_page_faults_total{{name=\"{name}\",pid=\"{pid}\",kind=\"minor\"}}");
    let before = wait_for(&address, &faults("sh"), |faults| faults > 0.0);
    drop(child.0.stdin.take());
    let text = wait_until(&address, |text| value(text, &faults("sleep")).is_some());
    assert!(value(&text, &faults("sleep")).unwrap() >= before, "{before}: {text}");
    assert_eq!(value(&text, &faults("sh")), None);
}

#[test]
fn a_process_that_leaves_its_group_is_shown_no_longer_and_counts_nothing_twice_when_it_is_back() {
    let group = Group::create("left");
    let place = Place::new("left-toucher");
    // Begun under our eyes, so that it counts from its beginning.
    let (_exporter, address) = serve(&["--cgroup", &group.path(), "--heap", "0"]);
    wait_for(&address, &group.memory(), |bytes| bytes == 4096.0);
    let mut toucher = Toucher::start(&place, "toucher-left");
    toucher.touch(3_000);
    let of = |metric: &str| format!("faultless_{metric}{{name=\"toucher-left\"}}");
    let faults = "faultless_page_faults_total{name=\"toucher-left\",kind=\"minor\"}";
    group.put("cgroup.procs", &toucher.pid());
    wait_for(&address, faults, |faults| faults >= 3_000.0);
    group.put("cgroup.procs", "");
    wait_for(&address, &of("processes"), |processes| processes == 0.0);
    let text = scrape(&address);
    assert_eq!(
        (value(&text, &of("processes_met_total")), value(&text, &of("processes_ended_total"))),
        (Some(1.0), Some(0.0))
    );
    group.put("cgroup.procs", &toucher.pid());
    wait_for(&address, &of("processes"), |processes| processes == 1.0);
    toucher.touch(500);
    let all = wait_for(&address, faults, |faults| faults >= 3_500.0);
    assert!(all < 6_000.0, "{all}");
}

#[test]
fn a_control_group_that_is_removed_is_found_again_and_is_one_however_it_is_named() {
    let group = Group::create("restarted");
    let twice = format!("{}/./", group.path());
    let (_exporter, address) = serve(&["--cgroup", &group.path(), "--cgroup", &twice]);
    let memory = group.memory();
    let text = wait_until(&address, |text| value(text, &memory) == Some(4096.0));
    assert_eq!(text.lines().filter(|line| line.starts_with(&memory)).count(), 1, "{text}");
    fs::remove_file(group.0.file("memory.current")).unwrap();
    wait_until(&address, |text| value(text, &memory).is_none());
    group.put("memory.current", "8192\n");
    wait_for(&address, &memory, |bytes| bytes == 8192.0);
}

#[test]
fn where_few_files_may_be_open_some_processes_are_followed_and_the_rest_goes_on() {
    let place = Place::new("few-files");
    let (program, textfile) = (place.file("sleeper-few"), place.file("few.prom"));
    // By a program of its own: what a child of another test holds open for writing cannot be run.
    assert!(Command::new("cp").args(["/bin/sleep", &program]).status().unwrap().success());
    let sleepers: Vec<Running> = (0..60).map(|_| Running::start(Command::new(&program).arg("600"))).collect();
    let words = [&SERVES[..], &["--name", "sleeper-few", "--textfile", &textfile]].concat();
    let (_exporter, address, said) = serving(after("ulimit -n 64", &words));
    let processes = "faultless_processes{name=\"sleeper-few\"}";
    let followed = wait_for(&address, processes, |processes| processes > 0.0);
    assert!(followed < 60.0, "{followed}");
    let mut lines = said.lines().map(Result::unwrap);
    let told = lines.find(|line| line.contains("no more files may be open")).unwrap();
    assert!(told.contains("LimitNOFILE"), "{told}");
    // All at once: each has a descriptor left.
    let connections: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert!(value(&scrape(&address), processes).is_some());
    drop(connections);
    let is_written = || fs::read_to_string(&textfile).is_ok_and(|text| text.contains(processes));
    assert!(is_so_within(PATIENCE, is_written));
    drop(sleepers);
    wait_for(&address, processes, |processes| processes == 0.0);
}

#[test]
fn a_command_finds_the_limit_of_open_files_that_the_tool_found() {
    let words = ["export", "--listen", "127.0.0.1:0", "--", "sh", "-c", "ulimit -S -n"];
    let output = after("ulimit -S -n 256", &words).output().unwrap();
    assert_eq!(text(&output), "256\n", "{output:?}");
}

#[test]
fn heaps_are_looked_at_beside_the_watch() {
    let place = Place::new("heaps");
    let mut toucher = Toucher::start(&place, "toucher-heaps");
    toucher.touch(1);
    let (_exporter, address) = serve(&["--pid", &toucher.pid(), "--by", "process", "--heap", "100ms"]);
    let labels = format!("{{name=\"toucher-heaps\",pid=\"{}\",allocator=\"glibc\"}}", toucher.pid());
    wait_for(&address, &format!("faultless_heap_used_bytes{labels}"), |bytes| bytes > 3e6);
    assert_eq!(value(&scrape(&address), "faultless_exporter_failed_looks_total{at=\"heap\"}"), Some(0.0));
}

#[test]
fn a_file_for_node_exporter_is_always_whole_and_gone_at_the_end() {
    let place = Place::new("textfile");
    let path = place.file("faultless.prom");
    let words = ["export", "--name", "nobody-of-this-name", "--textfile", &path, "--interval", "20ms"];
    let mut exporter = Running::start(faultless(&words).stderr(Stdio::piped()));
    let mut seen = 0;
    let is_seen_often = || {
        if let Ok(text) = fs::read_to_string(&path) {
            assert!(text.contains("faultless_exporter_build_info") && text.ends_with('\n'), "{text}");
            seen += 1;
        }
        seen >= 20
    };
    assert!(is_so_within(PATIENCE, is_seen_often));
    send("TERM", exporter.pid());
    assert_eq!(exporter.0.wait().unwrap().signal(), Some(15));
    let mut said = String::new();
    exporter.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!said.contains("http://"), "nothing is served: {said}");
    assert_eq!(fs::read_dir(&place.0).unwrap().count(), 0);

    let own = std::process::id().to_string();
    let once = ["export", "--pid", &own, "--textfile", &path, "--once"];
    assert!(faultless(&once).status().unwrap().success());
    assert!(fs::read_to_string(&path).unwrap().contains("faultless_exporter_build_info"));
}

#[test]
fn a_file_that_can_be_written_now_and_then_is_complained_of_once() {
    let place = Place::new("now-and-then");
    let path = place.file("x.prom");
    let words = ["export", "--name", "nobody-of-this-name", "--textfile", &path, "--interval", "10ms"];
    let mut exporter = Running::start(faultless(&words).stderr(Stdio::piped()));
    let is_there = |wanted: bool| assert!(is_so_within(PATIENCE, || fs::exists(&path).unwrap() == wanted));
    // In the way of the new file, and no leftover.
    let obstacle = format!("{path}.{}.new", exporter.pid());
    for _ in 0..3 {
        is_there(true);
        assert!(is_so_within(PATIENCE, || fs::create_dir(&obstacle).is_ok()), "between two files");
        is_there(false);
        fs::remove_dir(&obstacle).unwrap();
    }
    send("TERM", exporter.pid());
    exporter.0.wait().unwrap();
    let said = std::io::read_to_string(exporter.0.stderr.take().unwrap()).unwrap();
    assert_eq!(said.matches("cannot write").count(), 1, "{said}");
}

#[test]
fn devices_and_pipes_are_written_once_and_never_removed() {
    let place = Place::new("streams");
    let (pipe, link) = (place.file("pipe"), place.file("link.prom"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    let own = std::process::id().to_string();
    let export = |words: &[&str]| {
        let words = [&["export", "--pid", &own, "--textfile"], words].concat();
        let output = faultless(&words).output().unwrap();
        (output.status.code(), errors(&output), text(&output))
    };
    for path in ["/dev/null", "/dev/stdout", pipe.as_str(), link.as_str()] {
        let (status, said, _) = export(&[path]);
        assert_eq!((status, said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("--textfile wants a regular file"), "{said}");
    }
    let (status, said, _) = export(&[&pipe, "--once"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("nobody reads this pipe"), "{said}");
    assert_eq!(export(&[&link, "--once"]).0, Some(0));
    let (status, _, text) = export(&["/dev/stdout", "--once"]);
    assert!(status == Some(0) && text.contains("faultless_exporter_build_info"), "{text}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && fs::symlink_metadata(&pipe).is_ok());
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_command_is_followed_to_its_end_and_its_status_is_passed_on() {
    let words = ["export", "--listen", "127.0.0.1:0", "--", "sh", "-c", "echo said; exit 3"];
    let output = faultless(&words).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), b"said\n".as_slice()));
}

#[test]
fn what_makes_no_sense_is_said_in_one_line() {
    for (words, status, reason) in [
        (vec!["export"], 2, "nothing to watch"),
        (vec!["export", "--name", "x", "--listen", "nonsense"], 2, "--listen wants ADDRESS:PORT"),
        (vec!["export", "--name", "x", "--textfile", "/nowhere/x.prom"], 1, "cannot write /nowhere/x.prom"),
        (vec!["export", "--pid", "0"], 2, "a process number is above 0"),
        (vec!["export", "--", "no-such-command-at-all"], 127, "no such command"),
    ] {
        assert_refused(&mut faultless(&words), status, reason);
    }
    assert_misused(&mut faultless(&["export", "--name", "x", "--once", "--listen", ":1"]), "--once");
}
