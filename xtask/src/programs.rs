//! `cargo xtask programs`: real programs doing real work under the library, with checked results.
//!
//! A program passes when its results are right *and* the library was seen mapped in its processes.

mod c_family;
mod git;
mod java;
mod node;
mod php;
mod postgresql;
mod python;
mod redis;
mod rustc;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::arguments::Arguments;
use crate::failure::{At, Failure, Result, usage, wrong};
use crate::library::{Profile, build};
use crate::sandbox::Sandbox;
use crate::workspace::TemporaryFolder;

struct Program {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Sandbox) -> Result<()>,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "redis",
        about: "data types, pipelining, snapshots, restart; all values",
        run: redis::run,
    },
    Program {
        name: "postgresql",
        about: "initdb, pgbench, parallel queries; all sums",
        run: postgresql::run,
    },
    Program { name: "javac", about: "compiles 600 generated classes, which then run", run: java::compile },
    Program {
        name: "java",
        about: "200 threads of deflated streams and direct buffers; all CRCs",
        run: java::threads,
    },
    Program {
        name: "python",
        about: "CPython's own tests of threads, json, zip, processes",
        run: python::own_allocator,
    },
    Program { name: "python-malloc", about: "the same with PYTHONMALLOC=malloc", run: python::plain_malloc },
    Program { name: "node", about: "worker threads, compression, transferred buffers", run: node::run },
    Program { name: "php", about: "with its extensions, with and without its own heap", run: php::run },
    Program {
        name: "gcc",
        about: "a large C file; the same object as without the library",
        run: c_family::gcc,
    },
    Program {
        name: "g++",
        about: "many templates; the same object as without the library",
        run: c_family::gxx,
    },
    Program {
        name: "rustc",
        about: "a large crate; the same program as without the library",
        run: rustc::run,
    },
    Program {
        name: "git",
        about: "import, merge, repack with threads, gc, fsck, clone; same hashes",
        run: git::run,
    },
];

/// Runs the task.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let list = arguments.switch("--list");
    let keep = arguments.switch("--keep");
    let preload = arguments.option("--preload")?;
    let programs = chosen(&arguments.words()?)?;
    if list {
        programs.iter().for_each(|program| println!("{:<14} {}", program.name, program.about));
        return Ok(());
    }
    let library = match preload {
        Some(path) => PathBuf::from(&path).canonicalize().at(Path::new(&path))?,
        None => build(Profile::Dist)?,
    };
    println!("under {}", library.display());
    let folder = TemporaryFolder::new("programs")?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for program in programs {
        let start = Instant::now();
        let outcome = Sandbox::new(folder.path(), program.name, &library)
            .and_then(|mut sandbox| (program.run)(&mut sandbox));
        let (counter, verdict) = match &outcome {
            Ok(()) => (&mut passed, "passed".to_owned()),
            Err(Failure::Missing(reason)) => (&mut skipped, format!("skipped ({reason})")),
            Err(Failure::Wrong(reason) | Failure::Usage(reason)) => {
                (&mut failed, format!("FAILED: {reason}"))
            }
        };
        *counter += 1;
        println!("{:<14} {:>6.1} s  {verdict}", program.name, start.elapsed().as_secs_f64());
    }
    if keep {
        println!("kept {}", folder.keep().display());
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { Ok(()) } else { wrong(format!("{failed} of the programs failed")) }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Program>> {
    if names.is_empty() {
        return Ok(PROGRAMS.iter().collect());
    }
    let find = |name: &String| match PROGRAMS.iter().find(|program| program.name == name) {
        Some(program) => Ok(program),
        None => usage(format!("no program is called {name:?} (cargo xtask programs --list)")),
    };
    names.iter().map(find).collect()
}

/// A script or source that lies in `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    crate::workspace::root().join("tests/programs").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_names_choose_all_programs_and_a_wrong_name_none() {
        assert_eq!(chosen(&[]).unwrap().len(), PROGRAMS.len());
        assert_eq!(chosen(&["git".to_owned()]).unwrap().len(), 1);
        assert!(chosen(&["gti".to_owned()]).is_err());
    }
}
