//! What tests say that cannot run on a machine. The test runner counts them as passed, so `cargo xtask check` gathers
//! what they say and names them at its end.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// The variable that names the file which gathers what was skipped; without it nothing is gathered.
pub const VARIABLE: &str = "FAULTLESS_SKIPPED";

/// Says that the running test ends here, or leaves out a part, because of what this machine lacks.
///
/// # Panics
/// When the file that `FAULTLESS_SKIPPED` names cannot be written.
pub fn skipped(reason: impl Display) {
    eprintln!("skipped: {reason}");
    if let Some(file) = std::env::var_os(VARIABLE) {
        let thread = std::thread::current();
        note(Path::new(&file), thread.name().unwrap_or("?"), &reason.to_string());
    }
}

/// One line, in one write: test programs that run at the same time append to the same file.
fn note(file: &Path, test: &str, reason: &str) {
    let line = format!("{test}: {}\n", reason.split_whitespace().collect::<Vec<_>>().join(" "));
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("{}: {error}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::note;

    #[test]
    fn each_skipped_test_is_one_line() {
        let file = std::env::temp_dir().join(format!("faultless-skipped-{}", std::process::id()));
        note(&file, "a_test", "no compiler\nhere ");
        note(&file, "another", "not permitted");
        let written = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(written, "a_test: no compiler here\nanother: not permitted\n");
    }
}
