//! Lines to type, for the help of each command and for the man page.

use crate::exit_status;

/// A line, and what it does.
pub type Example = (&'static str, &'static str);

/// What to type, by command.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "doctor",
        &[
            ("faultless doctor", "consult on the demo"),
            ("faultless doctor -- ./program arguments", "three rounds of each remedy"),
            ("faultless doctor -n 6 -- sort < FILE", "more rounds see smaller differences"),
            ("faultless doctor --for 30s --html page.html -- ./server", "a server needs a limit"),
            ("faultless doctor --pid 4711", "a running process, as it is"),
        ],
    ),
    (
        "run",
        &[
            ("faultless run -- ./program arguments", "and a line about what it used"),
            ("faultless run --stats -- ./program", "and the allocator's statistics"),
            ("faultless run --json used.json -- ./program", "and the summary in a file"),
        ],
    ),
    (
        "bench",
        &[
            ("faultless bench -- gcc -O2 -c big.c", "which allocator is best for this?"),
            ("faultless bench --quick", "the published programs, some minutes"),
            ("faultless bench sun -a libc,faultless --html page.html", "one suite, two allocators"),
            ("faultless bench --list", "suites, workloads, allocators"),
        ],
    ),
    (
        "map",
        &[
            ("faultless map --pid 4711", "a running process"),
            ("faultless map -- ./program", "a command at its end"),
            ("faultless map --nmt --pid 4711", "a Java process, with its own account"),
            ("faultless map --diff before.json after.json", "two that --json printed, or smaps"),
        ],
    ),
    (
        "heap",
        &[
            ("faultless heap --pid 4711", "a running process"),
            ("faultless heap --stop --pid 4711", "exact: it stands still for a moment"),
            ("faultless heap --after 10s -- ./server", "a command after ten seconds"),
            ("faultless heap core.4711", "a core file"),
        ],
    ),
    (
        "watch",
        &[
            ("faultless watch -- ./program", "a command, as a chart"),
            ("faultless watch --name postgres --lines", "all of a name, as lines"),
            ("faultless watch --for 1m --record w.rec --plot w.svg --pid 4711", "a minute, kept and drawn"),
            ("faultless watch --replay w.rec", "the recording again"),
        ],
    ),
    (
        "faults",
        &[
            ("faultless faults -- ./program", "which functions take the faults"),
            ("faultless faults --pid 4711 --for 10s --html flame.html", "a flame graph"),
            ("faultless faults --record after.json -- ./program", "save it"),
            ("faultless faults --diff before.json after.json", "compare two of these"),
        ],
    ),
    (
        "churn",
        &[
            ("faultless churn -- ./program", "mmap, munmap, brk, madvise"),
            ("faultless churn --malloc -- ./program", "malloc, free"),
            ("faultless churn --malloc --pprof heap.pb.gz -- ./program", "a heap profile"),
            ("faultless churn --pid 4711 --for 10s", "a running process"),
            ("faultless churn --malloc --record after.json -- ./program", "save it"),
            ("faultless churn --diff before.json after.json", "compare two of these"),
        ],
    ),
    (
        "export",
        &[
            ("faultless export --name postgres,java --children", "at http://127.0.0.1:19477/metrics"),
            ("faultless export --name redis-server --textfile r.prom", "for node_exporter"),
            ("faultless export --once --pid 4711", "print once, for a look"),
        ],
    ),
    (
        "check",
        &[
            ("faultless check", "what is permitted here"),
            ("faultless check --pid 4711", "what is permitted on this process"),
        ],
    ),
    (
        "manual",
        &[
            ("faultless manual | man -l -", "read it"),
            ("faultless manual > /usr/local/share/man/man1/faultless.1", "install it"),
            ("faultless manual --completions bash > /etc/bash_completion.d/faultless", "completions"),
        ],
    ),
];

/// The lines of one command.
pub fn of(command: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, lines)| lines)
}

/// What stands at the end of a command's help: examples, then statuses.
pub fn and_statuses(command: &str) -> String {
    let lines = of(command);
    let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    let row = |(line, meaning): &Example| format!("  {line:width$}  {meaning}");
    let rows: Vec<String> = lines.iter().map(row).collect();
    format!("Examples:\n{}\n\n{}", rows.join("\n"), exit_status::of(command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::{CommandFactory, Parser};

    #[test]
    fn each_command_has_examples_that_are_understood_and_fit_a_page() {
        for command in Arguments::command().get_subcommands() {
            let name = command.get_name();
            assert!(!of(name).is_empty(), "{name}");
            for (line, meaning) in of(name) {
                assert!(!meaning.is_empty(), "{line}");
                let typed = line.split(' ').take_while(|word| !["|", ">", "<"].contains(word));
                assert!(line.starts_with(&format!("faultless {name}")), "{line}");
                assert!(Arguments::try_parse_from(typed).is_ok(), "{line}");
            }
            let help = and_statuses(name);
            assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        }
    }
}
