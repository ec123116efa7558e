//! Medians, and tables in plain text.

use faultless_records::quantity;

use super::sample::Sample;

/// The middle of a figure over the samples that belong together; not a number where there is none.
pub fn median<'a>(samples: impl Iterator<Item = &'a Sample>, name: &str) -> f64 {
    let mut values: Vec<f64> = samples.map(|sample| sample.figure(name)).filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// A count with separated thousands; a dash where there is none.
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    quantity::apart(&format!("{value:.0}"))
}

/// A number with so many decimals; a dash where there is none.
pub fn decimal(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { "-".to_owned() }
}

/// Rows as aligned columns: the first to the left, the others to the right, a line under the head.
pub fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (column, cell) in cells.enumerate() {
            let padding = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            text.push_str(&if column == 0 {
                format!("{cell}{padding}")
            } else {
                format!("  {padding}{cell}")
            });
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    };
    let mut text = line(&mut head.iter().copied());
    text.push_str(&"─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
    text.push('\n');
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: f64) -> Sample {
        let figures = vec![("x".to_owned(), value)];
        Sample { program: "populate", arm: String::new(), case: String::new(), round: 0, figures }
    }

    #[test]
    fn the_median_is_the_middle() {
        let samples = [3.0, 1.0, 2.0, 10.0].map(sample);
        assert_eq!(median(samples.iter().take(3), "x").to_string(), "2");
        assert_eq!(median(samples.iter(), "x").to_string(), "2.5");
        assert!(median(samples.iter(), "y").is_nan());
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([count(12.0), count(1234.0), count(1_234_567.0)], ["12", "1,234", "1,234,567"]);
        assert_eq!((count(f64::NAN), decimal(0.125, 2)), ("-".to_owned(), "0.12".to_owned()));
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["ä".to_owned(), "1".to_owned()], vec!["bcd".to_owned(), "1000".to_owned()]];
        assert_eq!(columns(&["a", "n"], &rows), "a       n\n─────────\nä       1\nbcd  1000\n");
    }
}
