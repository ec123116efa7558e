//! Numbers of the page: figures, ticks, coordinates, dates.

use faultless_diagnosis::standing::Ratio;
use faultless_records::quantity;

/// Three significant digits, more before the decimal point: `0.0312`, `1.24`, `1,310`.
#[must_use]
pub fn three_digits(number: f64) -> String {
    digits(number, 3)
}

fn digits(number: f64, significant: i32) -> String {
    if !number.is_finite() {
        return "–".into();
    }
    if number == 0.0 {
        return "0".into();
    }
    let magnitude = number.abs().log10().floor() as i32;
    let decimals = (significant - 1 - magnitude).clamp(0, 9) as usize;
    if number.abs() >= 1000.0 && (decimals == 0 || number.fract() == 0.0) {
        let sign = if number < 0.0 { "−" } else { "" };
        return format!("{sign}{}", quantity::count(number.abs().round() as u64));
    }
    format!("{number:.decimals$}")
}

/// As at the ticks of an axis: no digits that say nothing.
#[must_use]
pub fn tick(number: f64) -> String {
    let text = digits(number, 5);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Mebibytes with three digits, of a number of bytes.
#[must_use]
pub fn mebibytes(bytes: f64) -> String {
    three_digits(in_mebibytes(bytes))
}

/// The number of mebibytes.
#[must_use]
pub fn in_mebibytes(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// The interval of a ratio: `0.79–0.84`.
#[must_use]
pub fn interval(ratio: &Ratio) -> String {
    let bare = |number: f64| quantity::ratio(number).trim_start_matches('×').to_owned();
    let (low, high) = (bare(ratio.low), bare(ratio.high));
    if low == high { low } else { format!("{low}–{high}") }
}

/// A coordinate of a picture: a tenth of a pixel is enough, and there is no other number than a finite one.
#[must_use]
pub fn coordinate(number: f64) -> String {
    let number = if number.is_finite() { number } else { 0.0 };
    let text = format!("{number:.1}");
    text.strip_suffix(".0")
        .map_or(text.clone(), |whole| if whole == "-0" { "0".into() } else { whole.into() })
}

/// Date and time in UTC: `2026-02-28 13:05 UTC`.
///
/// Days to a date as in Howard Hinnant's "chrono-compatible low-level date algorithms", `civil_from_days`.
#[must_use]
pub fn date_utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_ticks_no_idle_ones() {
        assert_eq!(
            [0.0, 0.031_24, 0.5, 1.239, 45.67, 1310.4].map(three_digits),
            ["0", "0.0312", "0.500", "1.24", "45.7", "1,310"]
        );
        assert_eq!(
            [0.0, 0.25, 1.0, 1.005, 1250.0, 1e-9].map(tick),
            ["0", "0.25", "1", "1.005", "1,250", "0.000000001"]
        );
        assert_eq!(three_digits(f64::NAN), "–");
    }

    #[test]
    fn coordinates_are_finite_and_short() {
        assert_eq!([1.0, 1.25, -0.01, f64::NAN, f64::INFINITY].map(coordinate), ["1", "1.2", "0", "0", "0"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date_utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(date_utc(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(date_utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date_utc(1_767_225_599), "2025-12-31 23:59 UTC");
        assert!(date_utc(u64::MAX).ends_with("UTC"));
    }
}
