//! Times as people type them.

use std::time::Duration;

/// Longest time taken: a year.
const LONGEST_S: f64 = 366.0 * 86_400.0;

/// Reads a number with `ms`, `s`, `m` or `h` after it; seconds without.
///
/// # Errors
/// One line that says what was expected.
pub fn parse(text: &str) -> Result<Duration, String> {
    match parse_or_zero(text)? {
        Duration::ZERO => Err(out_of_range(text)),
        time => Ok(time),
    }
}

/// The same where 0, in whatever unit, has a meaning of its own.
///
/// # Errors
/// One line that says what was expected.
pub fn parse_or_zero(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a time such as 10s, 500ms, 2m or 1h, not {text}");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(expected()),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = digits.parse().ok().filter(|_| is_plain).ok_or_else(expected)?;
    let seconds = number * factor;
    if seconds > LONGEST_S {
        return Err(out_of_range(text));
    }
    // What is too short to be told from 0 is none that was meant.
    let time = Duration::from_secs_f64(seconds);
    if time.is_zero() && number > 0.0 { Err(out_of_range(text)) } else { Ok(time) }
}

fn out_of_range(text: &str) -> String {
    format!("expected a time of 1 ns or more, and of at most a year (8784h), not {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_their_units() {
        assert_eq!(parse("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1h"), Ok(Duration::from_secs(3600)));
    }

    #[test]
    fn no_time_at_all_is_no_time_in_every_unit() {
        assert_eq!(["0", "0s", "0ms", "0.0h"].map(parse_or_zero), [const { Ok(Duration::ZERO) }; 4]);
        assert_eq!(parse_or_zero("2m"), Ok(Duration::from_secs(120)));
        assert!(["0.0000000001s", "0x", "9000h"].map(parse_or_zero).iter().all(Result::is_err));
    }

    #[test]
    fn what_is_no_time_is_refused_in_one_line() {
        for text in ["", "s", "-1s", "0", "1e9s", "10 s", "nan", "inf", "5d", "99999999h", "é"] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("expected a time") && !error.contains('\n'), "{text}: {error}");
        }
        for text in ["0", "0ms", "0.0000000001s", "9000h", "99999999999999999999s"] {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains("at most a year (8784h)") && error.ends_with(text),
                "it has the form: {error}"
            );
        }
    }
}
