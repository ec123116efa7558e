//! Numbers as people read them.

use std::time::Duration;

pub use faultless_records::thousands::{count, several};

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

/// The nearest whole number, its thousands apart.
#[must_use]
pub fn whole(number: f64) -> String {
    count(number.round() as u64)
}

/// Mebibytes with one decimal; halves go up, as in sentences.
#[must_use]
pub fn mebibytes(bytes: u64) -> String {
    let tenths = (u128::from(bytes) * 10 + (1 << 19)) >> 20;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A ratio to the first arm: more decimals the smaller it is.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_what_matters() {
        assert_eq!(seconds(Duration::from_millis(8)), "0.008");
        assert_eq!(seconds(Duration::from_millis(4123)), "4.12");
        assert_eq!((mebibytes(26_214_400), mebibytes(3328 << 10)), ("25.0".into(), "3.3".into()));
        assert_eq!(count(4_036_512), "4,036,512");
        assert_eq!((count(0), count(999), count(1000)), ("0".into(), "999".into(), "1,000".into()));
        assert_eq!(
            (several(1, "call"), several(0, "call"), several(1000, "call")),
            ("1 call".into(), "0 calls".into(), "1,000 calls".into())
        );
        assert_eq!(ratio(0.0123), "×0.012");
        assert_eq!(ratio(f64::INFINITY), "-");
    }
}
