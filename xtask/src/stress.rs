//! `cargo xtask stress`: `tests/c/stress.c` under the library, with and without its debug assertions, in several ways.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::arguments::Arguments;
use crate::failure::{Result, wrong};
use crate::library::{Profile, build};
use crate::sandbox::Sandbox;
use crate::workspace::{TemporaryFolder, c_compiler, root, succeed};

/// Ways to run it: what is done to it, and `FAULTLESS`.
const WAYS: [(&str, &str); 8] = [
    ("", ""),
    ("stopped", ""),
    ("refused", ""),
    ("stopped refused", "purger:off"),
    ("stopped", "purge:now"),
    ("refused", "purge:never"),
    ("", "huge_pages:always"),
    ("stopped", "thrift:1000000"),
];

/// Runs the task.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds = arguments.number("--seconds", 600_u64)?.div_ceil(WAYS.len() as u64);
    let threads: u32 = arguments.number("--threads", 8)?;
    let seed: u64 = arguments.number("--seed", 1)?;
    arguments.end()?;

    let folder = TemporaryFolder::new("stress")?;
    let mut failed = 0;
    for profile in [Profile::Checked, Profile::Dist] {
        let sandbox = Sandbox::new(folder.path(), profile.name(), &build(profile)?)?;
        let program = compile(&sandbox)?;
        for (seed, (done_to, options)) in (seed..).zip(WAYS) {
            let words = format!("{seconds} {threads} {seed} {done_to}");
            println!("{:<8} FAULTLESS={options} stress {words}", profile.name());
            let job = sandbox.job(&program).args(words.split_whitespace()).env("FAULTLESS", options);
            match job.proven_in("stress").limit(Duration::from_secs(2 * seconds + 60)).run() {
                Ok(done) => println!("         {}", done.text().lines().last().unwrap_or_default()),
                Err(failure) => {
                    failed += 1;
                    println!("         FAILED  {failure}");
                }
            }
        }
    }
    if failed > 0 {
        return wrong(format!(
            "{failed} of {} stress runs failed; their programs and outputs are in {}",
            2 * WAYS.len(),
            folder.keep().display()
        ));
    }
    Ok(())
}

fn compile(sandbox: &Sandbox) -> Result<PathBuf> {
    let (source, program) = (root().join("tests/c/stress.c"), sandbox.path("stress"));
    let words = ["-O2", "-g", "-std=gnu11", "-pthread", "-o"].map(Path::new);
    succeed(c_compiler().args(words).args([&program, &source]))?;
    Ok(program)
}
