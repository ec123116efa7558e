//! Numbers as sentences have them, with their thousands apart.

/// A row of decimal digits with a comma before every third from the end.
#[must_use]
pub fn apart(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count.
#[must_use]
pub fn count(number: u64) -> String {
    apart(&number.to_string())
}

/// So many of a thing, which takes an ending when it is not one: `1 thread`, `2 threads`, `2 processes`.
#[must_use]
pub fn several(number: u64, thing: &str) -> String {
    let s = match thing.ends_with('s') {
        _ if number == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{} {thing}{s}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_ending() {
        let seen = [several(0, "page"), several(1, "process"), several(1000, "more process")];
        assert_eq!(seen, ["0 pages", "1 process", "1,000 more processes"]);
    }

    #[test]
    fn commas_stand_between_threes() {
        assert_eq!(["", "1", "999", "1000", "4036512"].map(apart), ["", "1", "999", "1,000", "4,036,512"]);
    }
}
