//! The command line of `faultless watch`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::arguments::EXIT_STATUS;

/// `faultless watch`
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub struct WatchArguments {
    /// Watch the processes with these numbers.
    #[arg(short, long, value_delimiter = ',', value_name = "PID,...")]
    pub pid: Vec<i32>,
    /// Watch the processes of these names (at most 15 bytes, as ps -o comm shows them), also those that begin later.
    #[arg(short, long, value_delimiter = ',', value_name = "NAME,...")]
    pub name: Vec<String>,
    /// Watch the processes whose command line fits this regular expression, also those that begin later.
    #[arg(short = 'm', long = "match", value_name = "REGEX")]
    pub pattern: Option<String>,
    /// Watch the children of all these, too, and theirs.
    #[arg(short, long)]
    pub children: bool,
    /// Time from one sample to the next, such as 100ms, 1s; at least 10ms.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Stop after this time, such as 30s, 5m; a started command goes on to its end, unwatched.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub limit: Option<Duration>,
    /// Time between two readings of PSS and exact RSS (smaps_rollup), for which a process waits; 0 for none.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub pss: Duration,
    /// Print lines even where a chart could be shown.
    #[arg(short, long)]
    pub lines: bool,
    /// Print CSV.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print lines of JSON, the form of recordings.
    #[arg(long)]
    pub json: bool,
    /// Where lines, CSV or JSON go [default: standard output; standard error when a command is started].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Record everything to FILE, which is whole at any moment.
    #[arg(short, long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Watch nothing: show what an earlier --record wrote to FILE (- for standard input).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "name", "pattern", "children", "interval", "limit", "pss", "command"])]
    pub replay: Option<PathBuf>,
    /// Draw everything into FILE at the end: SVG, or PNG when its name ends so.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// A command to start and watch.
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Shortest interval.
const SHORTEST: Duration = Duration::from_millis(10);

/// Longest time that is taken for one.
const LONGEST_S: f64 = 1e9;

fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < SHORTEST => Err("expected 10ms or more".into()),
        interval => Ok(interval),
    }
}

/// A time such as `100ms`, `1.5s`, `2m`, `1h`; a number alone is in s.
///
/// # Errors
/// What was expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected a time such as 100ms, 1.5s, 2m or 1h".into()),
    };
    let seconds = number.parse::<f64>().map(|number| number * unit_s);
    match seconds {
        Ok(seconds) if seconds <= LONGEST_S => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a time such as 100ms, 1.5s, 2m or 1h".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_nonsense_is_refused() {
        for (text, ms) in [("100ms", 100), ("1", 1000), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "1 s", "-1", "1d", "1e400", "9999999999999", ".", "inf", "NaN"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(interval("9ms").is_err() && interval("10ms").is_ok());
    }
}
