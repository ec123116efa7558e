//! `cargo xtask stress`: `tests/c/stress.c` under the library, with and without its debug assertions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::arguments::Arguments;
use crate::failure::{Result, wrong};
use crate::library::{Profile, build};
use crate::sandbox::Sandbox;
use crate::workspace::{TemporaryFolder, c_compiler, root, succeed};

/// Runs the task.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds: u64 = arguments.number("--seconds", 600)?;
    let threads: u32 = arguments.number("--threads", 8)?;
    let seed: u64 = arguments.number("--seed", 1)?;
    arguments.end()?;

    let folder = TemporaryFolder::new("stress")?;
    let mut failed = 0;
    for profile in [Profile::Checked, Profile::Dist] {
        let sandbox = Sandbox::new(folder.path(), profile.name(), &build(profile)?)?;
        let program = compile(&sandbox)?;
        let words = [seconds.to_string(), threads.to_string(), seed.to_string()];
        println!("{:<8} stress {} (seconds, threads, seed)", profile.name(), words.join(" "));
        let job = sandbox.job(&program).args(&words).proven_in("stress");
        match job.limit(Duration::from_secs(2 * seconds + 60)).run() {
            Ok(done) => {
                println!("{:<8} passed  {}", profile.name(), done.text().lines().last().unwrap_or_default())
            }
            Err(failure) => {
                failed += 1;
                println!("{:<8} FAILED  {failure}", profile.name());
            }
        }
    }
    if failed > 0 {
        return wrong(format!(
            "{failed} of 2 stress runs failed; their programs and outputs are in {}",
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
