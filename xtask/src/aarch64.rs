//! `cargo xtask aarch64`: the library for aarch64 and programs of `tests/c` under it, by `qemu-aarch64`.
//!
//! The emulator stands in for a machine as far as it goes: it knows no seccomp filters, a forked child of a process with threads
//! cannot start one there (so the purger is off), and what it keeps itself counts as resident. Programs that need those are left
//! out. It moves page tables badly, which the library notices, so here it copies. Page by page it notes what is mapped, so 1 TiB
//! takes it some 10 s: one program has the whole range, and once as much of it as there is room for in 39 bits of addresses, which
//! kernels of small machines have; the others have a limit under which the library takes its range piece by piece.

use std::path::Path;
use std::process::Command;

use crate::arguments::Arguments;
use crate::failure::{Failure, Result, wrong};
use crate::sandbox::tool;
use crate::workspace::{cargo, root, succeed, target};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian keeps that machine's loader and libraries.
const SYSTEM: &str = "/usr/aarch64-linux-gnu";
/// Less than 1 TiB, in KiB, and enough for the emulator.
const LIMIT_KIB: u32 = 100_000_000;

const PROGRAMS: [&str; 18] = [
    "alignment_of_sizes",
    "alignment_of_powers",
    "calloc_zero",
    "realloc_contents",
    "realloc_edges",
    "overflow",
    "usable_size",
    "zero_size",
    "errno_kept",
    "early_and_late",
    "mallinfo_truth",
    "few_mappings",
    "many_mappings",
    "remote_free",
    "fork_handlers",
    "trim_answers",
    "sized_free",
    WITH_PLUGIN,
];
/// Opens `deep_plugin.so` beside it.
const WITH_PLUGIN: &str = "deepbind";
/// Has the whole range, too, and runs in a small address space.
const WHOLE: &str = "realloc_edges";

/// Run with pages of other sizes, too.
const PAGES: [&str; 3] = ["calloc_zero", "realloc_contents", "overflow"];

/// What the library finds.
#[derive(Clone, Copy)]
enum Machine {
    /// Few addresses, by a limit.
    Limited,
    /// Addresses enough.
    Whole,
    /// 512 GiB of addresses.
    Bits39,
    /// Few addresses, and pages of so many bytes.
    Pages(&'static str),
}

impl Machine {
    fn name(self) -> String {
        match self {
            Self::Limited => "range in pieces".to_owned(),
            Self::Whole => "range of 1 TiB".to_owned(),
            Self::Bits39 => "39 bits of addresses".to_owned(),
            Self::Pages(bytes) => format!("pages of {bytes} bytes"),
        }
    }

    fn limit(self) -> String {
        match self {
            Self::Limited | Self::Pages(_) => LIMIT_KIB.to_string(),
            Self::Whole | Self::Bits39 => "unlimited".to_owned(),
        }
    }

    fn options(self) -> Vec<&'static str> {
        match self {
            Self::Limited | Self::Whole => Vec::new(),
            Self::Bits39 => vec!["-R", "0x8000000000"],
            Self::Pages(bytes) => vec!["-p", bytes],
        }
    }
}

/// Runs the task.
pub fn run(arguments: Arguments) -> Result<()> {
    arguments.end()?;
    tool(EMULATOR, "qemu-user")?;
    tool(COMPILER, "gcc-aarch64-linux-gnu libc6-dev-arm64-cross")?;
    let folder = target()?.join("aarch64");
    let linker = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER";
    let words =
        ["build", "--quiet", "--package", "faultless-malloc", "--profile", "dist", "--target", TARGET];
    // Where rustup has no such target it says so, and how to add it.
    succeed(cargo().env(linker, COMPILER).args(words).arg("--target-dir").arg(&folder))?;
    let library = folder.join(TARGET).join("dist/libfaultless.so");

    let mut failed = 0;
    let mut runs: Vec<_> = PROGRAMS.iter().map(|name| (*name, Machine::Limited)).collect();
    runs.extend([(WHOLE, Machine::Whole), (WHOLE, Machine::Bits39)]);
    for bytes in ["16384", "65536"] {
        runs.extend(PAGES.iter().map(|name| (*name, Machine::Pages(bytes))));
    }
    for &(name, machine) in &runs {
        let place = machine.name();
        match run_one(&folder, &library, name, machine) {
            Ok(()) => println!("passed  {name} ({place})"),
            Err(failure) => {
                failed += 1;
                println!("FAILED  {name} ({place}): {failure}");
            }
        }
    }
    if failed == 0 { Ok(()) } else { wrong(format!("{failed} of {} programs failed", runs.len())) }
}

fn run_one(folder: &Path, library: &Path, name: &str, machine: Machine) -> Result<()> {
    let compile = |name: &str, output: &Path, kind: &[&str]| {
        let flags = ["-O2", "-w", "-std=gnu11", "-pthread", "-fno-builtin", "-o"];
        let source = root().join(format!("tests/c/{name}.c"));
        succeed(Command::new(COMPILER).args(flags).arg(output).args(kind).arg(source))
    };
    let program = folder.join(name);
    compile(name, &program, &[])?;
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v $0; exec \"$@\"", &machine.limit(), EMULATOR, "-L", SYSTEM]);
    command.args(machine.options());
    command.arg("-E").arg(format!("LD_PRELOAD={}", library.display()));
    command.arg(program);
    if name == WITH_PLUGIN {
        compile("deep_plugin", &folder.join("deep_plugin.so"), &["-shared", "-fPIC"])?;
        command.arg("deep_plugin.so");
    }
    command.env("FAULTLESS", "purger:off,stats:exit");
    // The emulator takes its own memory in slices, for which it ends where a program uses up all mappings; malloc has some left.
    command.env("G_SLICE", "always-malloc");
    let output = command.output().map_err(|error| Failure::Missing(format!("cannot start sh: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return wrong(format!("{}\n{said}", output.status));
    }
    // Else it may have run without the library.
    if said.contains("faultless statistics") { Ok(()) } else { wrong(format!("no statistics\n{said}")) }
}
