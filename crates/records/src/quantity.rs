//! Numbers as people read them.

use std::time::Duration;

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

/// The nearest whole number.
#[must_use]
pub fn whole(number: f64) -> String {
    count(number.round() as u64)
}

/// Seconds with two decimals; three below a tenth, where two would hide everything.
#[must_use]
pub fn seconds(time: Duration) -> String {
    seconds_of(time.as_secs_f64())
}

/// The same of a number of seconds.
#[must_use]
pub fn seconds_of(seconds: f64) -> String {
    if seconds < 0.0995 { format!("{seconds:.3}") } else { format!("{seconds:.2}") }
}

/// A time in words, two digits of it.
#[must_use]
pub fn span(nanoseconds: f64) -> String {
    let (number, unit) = match nanoseconds {
        short if short < 1e3 => (short, "ns"),
        short if short < 1e6 => (short / 1e3, "µs"),
        long if long < 1e9 => (long / 1e6, "ms"),
        long => (long / 1e9, "s"),
    };
    if number < 9.95 { format!("{number:.1} {unit}") } else { format!("{number:.0} {unit}") }
}

/// Mebibytes with one decimal, without the unit; halves go up.
#[must_use]
pub fn mebibytes(bytes: u64) -> String {
    let tenths = tenths(bytes, 20);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A size in words.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => trimmed(bytes, 10, "KiB"),
        0x10_0000..0x4000_0000 => trimmed(bytes, 20, "MiB"),
        0x4000_0000..0x100_0000_0000 => trimmed(bytes, 30, "GiB"),
        _ => trimmed(bytes, 40, "TiB"),
    }
}

/// One decimal, and none where it would be zero.
fn trimmed(bytes: u64, shift: u32, unit: &str) -> String {
    let tenths = tenths(bytes, shift);
    if tenths.is_multiple_of(10) {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// How many tenths of a unit of `1 << shift` bytes; halves go up.
fn tenths(bytes: u64, shift: u32) -> u128 {
    (u128::from(bytes) * 10 + (1 << (shift - 1))) >> shift
}

/// Both sizes, or one where they look the same.
#[must_use]
pub fn range(smallest_bytes: u64, largest_bytes: u64) -> String {
    let (smallest, largest) = (size(smallest_bytes), size(largest_bytes));
    if smallest == largest { largest } else { format!("{smallest} to {largest}") }
}

/// A ratio: more decimals the smaller it is, and a dash where there is none.
#[must_use]
pub fn ratio(ratio: f64) -> String {
    match ratio {
        ratio if !ratio.is_finite() => "-".into(),
        ratio if ratio >= 10.0 => format!("×{ratio:.0}"),
        ratio if ratio >= 0.1 => format!("×{ratio:.2}"),
        ratio if ratio >= 0.001 => format!("×{ratio:.3}"),
        ratio => format!("×{ratio:.4}"),
    }
}

/// A part of all as `97.8 %`: something is never `0.0 %`, and a part of nothing is a dash.
#[must_use]
pub fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if !percent.is_finite() => "-".into(),
        0.0 => "0 %".into(),
        percent if percent < 0.05 => "<0.1 %".into(),
        percent => format!("{percent:.1} %"),
    }
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

    #[test]
    fn numbers_are_short_and_keep_what_matters() {
        assert_eq!([8, 4123].map(Duration::from_millis).map(seconds), ["0.008", "4.12"]);
        assert_eq!([26_214_400, 3328 << 10].map(mebibytes), ["25.0", "3.3"]);
        assert_eq!(
            [0.0, 0.00041, 0.0123, 0.5, 12.3, f64::INFINITY, f64::NAN].map(ratio),
            ["×0.0000", "×0.0004", "×0.012", "×0.50", "×12", "-", "-"]
        );
    }

    #[test]
    fn times_have_two_digits() {
        let times = [5.0, 250.0, 1e3, 2048.0, 1e6, 2e7, 1e9].map(span);
        assert_eq!(times, ["5.0 ns", "250 ns", "1.0 µs", "2.0 µs", "1.0 ms", "20 ms", "1.0 s"]);
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(
            [100, 128 << 10, 9 << 19, 3 << 30, u64::MAX].map(size),
            ["100 B", "128 KiB", "4.5 MiB", "3 GiB", "16777216 TiB"]
        );
        assert_eq!([range(1, 2048), range(1 << 20, (1 << 20) + 1)], ["1 B to 2 KiB", "1 MiB"]);
    }

    #[test]
    fn a_part_that_is_there_is_never_shown_as_nothing() {
        let parts = [0.0, 0.0004, 0.0005, 0.0007, 0.001, 0.9995, 1.0];
        assert_eq!(parts.map(percent), ["0 %", "<0.1 %", "0.1 %", "0.1 %", "0.1 %", "100.0 %", "100.0 %"]);
        assert_eq!([f64::NAN, f64::INFINITY].map(percent), ["-", "-"]);
    }
}
