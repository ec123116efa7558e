//! What `ld.so --list-tunables` prints: the names that this glibc knows and the values it accepts.

/// One setting of `GLIBC_TUNABLES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunable {
    /// Full name, such as `glibc.malloc.arena_max`.
    pub name: String,
    /// Smallest value accepted; none when the setting is a text.
    pub minimum: Option<u64>,
    /// Largest value accepted; none when the setting is a text.
    pub maximum: Option<u64>,
}

/// Reads lines `glibc.malloc.perturb: 0 (min: 0, max: 255)`; numbers are decimal or `0x…`.
#[must_use]
pub fn parse(text: &str) -> Vec<Tunable> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Tunable> {
    let (name, rest) = line.split_once(':')?;
    if !name.starts_with("glibc.") {
        return None;
    }
    let bound = |label: &str| {
        let (_, value) = rest.split_once(label)?;
        number(value.split([',', ')']).next()?.trim())
    };
    Some(Tunable { name: name.to_owned(), minimum: bound("min:"), maximum: bound("max:") })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_in_both_notations() {
        let found = parse(
            "glibc.malloc.arena_max: 0x0 (min: 0x1, max: 0xffffffffffffffff)\n\
             glibc.malloc.perturb: 0 (min: 0, max: 255)\nglibc.cpu.x86_ibt:\nnot a tunable\n",
        );
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].minimum, found[0].maximum), (Some(1), Some(u64::MAX)));
        assert_eq!((found[1].minimum, found[1].maximum), (Some(0), Some(255)));
        assert_eq!((found[2].name.as_str(), found[2].minimum), ("glibc.cpu.x86_ibt", None));
    }
}
