//! One run with what it was a run of; and the lines that programs print and that are kept.

use std::fmt::Write;

use super::programs::Figures;
use crate::failure::{Failure, Result};

/// One run.
#[derive(Debug, Clone)]
pub struct Sample {
    /// `populate` or `gallery`.
    pub program: &'static str,
    /// What was tried.
    pub arm: String,
    /// Under which circumstances.
    pub case: String,
    /// Which round, from 0.
    pub round: usize,
    /// What the program printed.
    pub figures: Figures,
}

impl Sample {
    /// A figure by its name; not a number where there is none.
    pub fn figure(&self, name: &str) -> f64 {
        self.figures.iter().find(|(key, _)| key == name).map_or(f64::NAN, |(_, value)| *value)
    }

    /// The run as a line of JSON.
    pub fn json_line(&self) -> String {
        let mut line = format!(
            "{{\"program\":\"{}\",\"arm\":\"{}\",\"case\":\"{}\",\"round\":{}",
            self.program, self.arm, self.case, self.round
        );
        for (name, value) in &self.figures {
            let _ = write!(line, ",\"{name}\":{value}");
        }
        line.push_str("}\n");
        line
    }
}

/// Reads a program's line of `key=value`.
pub fn parse(text: &str) -> Result<Figures> {
    let pair = |word: &str| {
        let (key, value) = word.split_once('=')?;
        Some((key.to_owned(), value.parse::<f64>().ok().filter(|value| value.is_finite())?))
    };
    let line = text.lines().last().unwrap_or_default();
    let figures: Option<Figures> = line.split_whitespace().map(pair).collect();
    figures
        .filter(|figures| !figures.is_empty())
        .ok_or_else(|| Failure::Wrong(format!("expected key=value pairs, saw {line:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_figures_are_read_and_others_refused() {
        let figures = parse("noise\nelapsed_s=0.5 faults=12\n").unwrap();
        assert_eq!(figures, [("elapsed_s".to_owned(), 0.5), ("faults".to_owned(), 12.0)]);
        for bad in ["", "elapsed", "a=b", "a=inf"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_sample_is_one_line_of_json() {
        let figures = vec![("faults".to_owned(), 12.0)];
        let sample =
            Sample { program: "populate", arm: "touch".into(), case: "1 GiB".into(), round: 2, figures };
        assert_eq!(
            sample.json_line(),
            "{\"program\":\"populate\",\"arm\":\"touch\",\"case\":\"1 GiB\",\"round\":2,\"faults\":12}\n"
        );
        assert!(sample.figure("x").is_nan());
    }
}
