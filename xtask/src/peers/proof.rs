//! Shows that a library is a whole `malloc` and that programs run on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{At, Failure, Result, wrong};
use crate::workspace::{c_compiler, output};

const WITNESS: &str = include_str!("witness.c");

/// Missing even one of these, a program would mix the peer's blocks with the C library's. `reallocarray` is not among them: the
/// C library's own calls `realloc`.
const NEEDED: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
];

/// Ordinary programs, of which those that this machine has must run.
const PROGRAMS: &[&[&str]] = &[
    &["ls", "-l", "/proc/self/"],
    &["git", "--version"],
    &["python3", "-c", "import threading; print(len({str(number) for number in range(100000)}))"],
];

/// Checks that the library at `library` defines what it must, stands the witness, and runs programs.
pub fn works(library: &Path, environment: &[(&str, &str)], target: &Path) -> Result<()> {
    let symbols = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library))?;
    let missing = missing(&symbols);
    if !missing.is_empty() {
        return wrong(format!("{} does not define {}", library.display(), missing.join(" ")));
    }
    let witness = witness(&target.join("peers-build"))?;
    let witness = witness.to_string_lossy();
    let library_name = library.to_string_lossy();
    under(library, environment, &[&witness, &library_name])?;
    for program in PROGRAMS {
        match Command::new(program[0]).arg("--version").output() {
            Ok(_) => under(library, environment, program)?,
            Err(_) => continue,
        }
    }
    Ok(())
}

/// The needed functions that `nm -D` does not list as code.
fn missing(symbols: &str) -> Vec<&'static str> {
    let defines = |name: &str| {
        symbols.lines().any(|line| {
            let mut words = line.split_whitespace().rev();
            words.next() == Some(name) && matches!(words.next(), Some("T" | "W" | "i"))
        })
    };
    NEEDED.iter().copied().filter(|name| !defines(name)).collect()
}

/// Compiles the program that checks blocks, threads and forks.
fn witness(folder: &Path) -> Result<PathBuf> {
    let source = folder.join("witness.c");
    let program = folder.join("witness");
    fs::write(&source, WITNESS).at(&source)?;
    // -fno-builtin: no call of malloc's family is to be optimised away.
    let flags = ["-O1", "-fno-builtin", "-pthread"];
    output(c_compiler().args(flags).arg("-o").arg(&program).arg(&source).arg("-ldl"))?;
    Ok(program)
}

/// Runs a command with the library preloaded, for two minutes at most.
fn under(library: &Path, environment: &[(&str, &str)], words: &[&str]) -> Result<()> {
    let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
    preload.push(library);
    let mut command = Command::new("timeout");
    command.args(["120", "env"]).arg(preload).args(words).envs(environment.iter().copied());
    let result =
        command.output().map_err(|error| Failure::Missing(format!("cannot start timeout: {error}")))?;
    let errors = String::from_utf8_lossy(&result.stderr);
    // The loader only warns about a library that it cannot preload.
    if errors.contains("cannot be preloaded") || !result.status.success() {
        return wrong(format!("{} under it: {}\n{errors}", words[0], result.status));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_library_lacks_is_named() {
        let all: String = NEEDED.iter().map(|name| format!("0000000000001000 T {name}\n")).collect();
        assert!(missing(&all).is_empty());
        let without = all.replace("T pvalloc", "U pvalloc").replace("T free\n", "T freely\n");
        assert_eq!(missing(&without), ["free", "pvalloc"]);
    }
}
