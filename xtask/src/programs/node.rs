//! A Node program of worker threads.

use crate::failure::{Result, expect_equal};
use crate::programs::source;
use crate::sandbox::{Sandbox, tool};

/// Runs the check.
pub fn run(sandbox: &mut Sandbox) -> Result<()> {
    let node = tool("node", "nodejs")?;
    let library = sandbox.library().file_name().unwrap_or_default().to_owned();
    let job = sandbox.job(node).arg(source("workers.js")).args(["16", "150"]).arg(library);
    let done = job.proven_in("node").run()?;
    expect_equal("workers", "16 workers, 2400 rounds, all checksums right\n", &done.text())
}
