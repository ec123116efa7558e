//! CPython's own tests.

use std::path::PathBuf;

use crate::failure::{Failure, Result, wrong};
use crate::sandbox::{Sandbox, tool};

/// With the interpreter's own small-object allocator, which takes its arenas from the system.
pub fn own_allocator(sandbox: &mut Sandbox) -> Result<()> {
    let tests = ["test_threading", "test_json", "test_zipfile", "test_multiprocessing_fork"];
    run_tests(sandbox, "default", &tests)
}

/// With every object from `malloc`.
pub fn plain_malloc(sandbox: &mut Sandbox) -> Result<()> {
    let tests = ["test_threading", "test_json", "test_zipfile", "test_dict", "test_gc", "test_subprocess"];
    run_tests(sandbox, "malloc", &tests)
}

fn run_tests(sandbox: &Sandbox, allocator: &str, tests: &[&str]) -> Result<()> {
    let python = python_with_tests(sandbox, tests)?;
    let name = python.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = ["-m", "test", "-W"].iter().chain(tests);
    let job = sandbox.job(&python).env("PYTHONMALLOC", allocator).args(words.clone());
    match job.proven_in(&name).run() {
        Ok(done)
            if done.text().contains("Result: SUCCESS")
                || done.text().contains("== Tests result: SUCCESS ==") =>
        {
            Ok(())
        }
        Ok(done) => wrong(format!("the tests did not say that they succeeded\n{}", done.text())),
        Err(failure) => {
            // A failure that the library has no part in is said to be one.
            let alone = sandbox.plain_job(&python).env("PYTHONMALLOC", allocator).args(words).run();
            let alone = if alone.is_ok() {
                "without the library they pass"
            } else {
                "without the library they fail too"
            };
            wrong(format!("{failure}\n({alone})"))
        }
    }
}

/// The first `python3` of `PATH`, or Debian's, that has all the tests; as the file that really runs. One whose
/// installed packages import `threading` at the start is passed over: test_threading fails on it.
fn python_with_tests(sandbox: &Sandbox, tests: &[&str]) -> Result<PathBuf> {
    let question = "import importlib.util as u, os, sys; assert all(u.find_spec('test.' + t) for t in sys.argv[1:]); \
                    assert 'threading' not in sys.modules; \
                    print(os.path.realpath(sys.executable))";
    let candidates = [tool("python3", "python3")?, PathBuf::from("/usr/bin/python3")];
    for candidate in candidates {
        if let Ok(done) = sandbox.plain_job(candidate).args(["-c", question]).args(tests).run() {
            return Ok(PathBuf::from(done.text().trim_end()));
        }
    }
    const MISSING: &str = "python3 lacks its own tests (Debian: apt-get install libpython3.N-testsuite, with the N of python3 --version)";
    Err(Failure::Missing(MISSING.to_owned()))
}
