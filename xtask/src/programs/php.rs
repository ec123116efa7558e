//! PHP, whose extensions are opened with `RTLD_DEEPBIND`.

use crate::failure::{Result, expect_equal};
use crate::programs::source;
use crate::sandbox::{Sandbox, tool};

/// Runs the check.
pub fn run(sandbox: &mut Sandbox) -> Result<()> {
    let php = tool("php", "php-cli")?;
    let script = source("strings.php");
    let alone = sandbox.plain_job(&php).arg(&script).run()?.text();
    for its_heap in ["1", "0"] {
        let done = sandbox.job(&php).arg(&script).env("USE_ZEND_ALLOC", its_heap).proven_in("php").run()?;
        expect_equal("output", &alone, &done.text())?;
    }
    expect_equal("last line", "ok", alone.lines().last().unwrap_or_default())
}
