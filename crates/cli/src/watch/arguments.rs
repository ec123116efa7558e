//! The command line of `faultless watch`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::examples;
use crate::followed::FollowedArguments;
use crate::time_span;

/// `faultless watch`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("watch"))]
pub struct WatchArguments {
    /// Who is watched.
    #[command(flatten)]
    pub followed: FollowedArguments,
    /// Time from one sample to the next, such as 100ms, 1s; at least 10ms.
    #[arg(short, long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Stop after this time, such as 30s, 5m; a started command goes on to its end, unwatched [default: when all has ended].
    #[arg(long = "for", value_name = "DURATION", value_parser = time_span::parse)]
    pub limit: Option<Duration>,
    /// Time between two readings of PSS and exact RSS (smaps_rollup), during which a process may have to wait; 0 for none.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = time_span::parse_or_zero)]
    pub pss: Duration,
    /// Print lines instead of the chart.
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
    /// Record everything to FILE, line by line; --replay shows it again.
    #[arg(short, long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Watch nothing: show what an earlier --record wrote to FILE (- for standard input).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "name", "pattern", "cgroup", "children", "interval", "limit", "pss", "command"])]
    pub replay: Option<PathBuf>,
    /// Draw everything into FILE at the end: SVG, or PNG when its name ends so.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// A command to start and watch.
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Shortest interval.
pub const SHORTEST: Duration = Duration::from_millis(10);

/// At least [`SHORTEST`].
pub fn interval(text: &str) -> Result<Duration, String> {
    match time_span::parse_or_zero(text)? {
        short if short < SHORTEST => Err("expected 10ms or more".into()),
        interval => Ok(interval),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_a_least() {
        assert!(interval("9ms").is_err() && interval("0").is_err() && interval("x").is_err());
        assert_eq!(interval("10ms"), Ok(SHORTEST));
    }
}
