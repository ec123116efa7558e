//! The `#!` line of a script.

/// The interpreter that the kernel starts for a script, and the one argument it passes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// Path as written after `#!`.
    pub path: String,
    /// Everything after the path; the kernel passes it as a single argument.
    pub argument: Option<String>,
}

impl Interpreter {
    /// The program that `/usr/bin/env NAME` or `env -S NAME …` goes on to start.
    #[must_use]
    pub fn program_started_by_env(&self) -> Option<&str> {
        if self.path.rsplit('/').next() != Some("env") {
            return None;
        }
        let mut words = self.argument.as_deref()?.split_ascii_whitespace();
        words.find(|word| !word.starts_with('-') && !word.contains('='))
    }
}

/// Reads the `#!` line at the start of a file. Source: execve(2), "Interpreter scripts".
#[must_use]
pub fn interpreter(start_of_file: &[u8]) -> Option<Interpreter> {
    let line = start_of_file.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_matches([' ', '\t', '\r']);
    if line.is_empty() {
        return None;
    }
    let (path, argument) = match line.split_once([' ', '\t']) {
        Some((path, argument)) => (path, Some(argument.trim().to_owned())),
        None => (line, None),
    };
    Some(Interpreter { path: path.to_owned(), argument })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_argument_are_separated_at_the_first_blank() {
        let found = interpreter(b"#! /bin/sh -e -u\necho\n").unwrap();
        assert_eq!(found.path, "/bin/sh");
        assert_eq!(found.argument.as_deref(), Some("-e -u"));
        assert_eq!(found.program_started_by_env(), None);
    }

    #[test]
    fn env_is_followed_to_the_program_it_starts() {
        let plain = interpreter(b"#!/usr/bin/env python3\n").unwrap();
        assert_eq!(plain.program_started_by_env(), Some("python3"));
        let split = interpreter(b"#!/usr/bin/env -S LC_ALL=C perl -w\n").unwrap();
        assert_eq!(split.program_started_by_env(), Some("perl"));
    }

    #[test]
    fn other_files_have_no_interpreter() {
        assert_eq!(interpreter(b"\x7fELF"), None);
        assert_eq!(interpreter(b"#!\n"), None);
        assert_eq!(interpreter(b""), None);
    }
}
