//! The line that the demo program prints at its end.

/// Resident memory as the demo itself saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemoResidence {
    /// Before it allocated anything.
    pub start_bytes: u64,
    /// After it had freed its matrices and slept for a second.
    pub idle_bytes: u64,
}

/// Reads the line `chem calls=… checksum=… expected=… rss_start_kib=… rss_idle_kib=…` from the demo's output.
#[must_use]
pub fn parse(output: &str) -> Option<DemoResidence> {
    let line = output.lines().find(|line| line.starts_with("chem "))?;
    let bytes_of = |key: &str| {
        let value =
            line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
        value.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(DemoResidence { start_bytes: bytes_of("rss_start_kib")?, idle_bytes: bytes_of("rss_idle_kib")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_figures_are_read_in_bytes() {
        let line = "chem calls=1 checksum=2 expected=2 rss_start_kib=1128 rss_idle_kib=1520";
        assert_eq!(parse(line), Some(DemoResidence { start_bytes: 1128 << 10, idle_bytes: 1520 << 10 }));
    }

    #[test]
    fn figures_that_could_not_be_taken_are_none() {
        assert_eq!(parse("chem rss_start_kib=-1 rss_idle_kib=-1"), None);
        assert_eq!(parse("something else"), None);
    }
}
