//! How far a benchmark is and how long it will still take, on standard error.

use std::time::{Duration, Instant};

use faultless_report::plain::plain;
use faultless_trial::turns::{Turn, turns};
use indicatif::ProgressBar;

use crate::progress;

/// Without a terminal, a line at most this often.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// A bar on a terminal, a line now and then elsewhere.
pub struct BenchProgress {
    bar: Option<ProgressBar>,
    turns: Vec<Turn>,
    /// Wall time of the last run of each contender in each cell.
    seen: Vec<Vec<Option<Duration>>>,
    done: usize,
    begun: Instant,
    said: Instant,
}

impl BenchProgress {
    /// Before the first run.
    #[must_use]
    pub fn start(rounds: u32, cells: usize, contenders: usize) -> Self {
        let turns: Vec<Turn> = turns(rounds, cells, contenders).collect();
        let bar = progress::bar(progress::RUNS);
        if let Some(bar) = &bar {
            bar.set_length(turns.len() as u64);
        }
        let now = Instant::now();
        Self { bar, turns, seen: vec![vec![None; contenders]; cells], done: 0, begun: now, said: now }
    }

    /// A run begins.
    pub fn begins(&mut self, name: &str) {
        let message = format!("{name}, {}", left_in_words(self.left()));
        let is_due = self.done == 0 || self.said.elapsed() >= LINE_INTERVAL;
        match &self.bar {
            Some(bar) => bar.set_message(plain(&message)),
            None if is_due => {
                crate::say(&format!("run {} of {}: {message}", self.done + 1, self.turns.len()));
                self.said = Instant::now();
            }
            None => {}
        }
        self.begun = Instant::now();
    }

    /// The run that began last has ended.
    pub fn ended(&mut self) {
        if let Some(turn) = self.turns.get(self.done) {
            self.seen[turn.cell][turn.contender] = Some(self.begun.elapsed());
        }
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Expected time of all runs to come: as the same run took before, or as an average one; none before the first.
    fn left(&self) -> Option<Duration> {
        let known: Vec<Duration> = self.seen.iter().flatten().flatten().copied().collect();
        let average = known.iter().sum::<Duration>().checked_div(u32::try_from(known.len()).ok()?)?;
        let ahead = &self.turns[self.done.min(self.turns.len())..];
        Some(ahead.iter().map(|turn| self.seen[turn.cell][turn.contender].unwrap_or(average)).sum())
    }
}

fn left_in_words(left: Option<Duration>) -> String {
    match left.map(|left| left.as_secs()) {
        None => "time left not yet known".into(),
        Some(seconds) if seconds < 90 => format!("about {seconds} s left"),
        Some(seconds) if seconds < 5400 => format!("about {} min left", (seconds + 30) / 60),
        Some(seconds) => format!("about {:.1} h left", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_estimated_from_the_runs_so_far() {
        let mut progress = BenchProgress::start(2, 1, 2);
        assert_eq!(progress.left(), None);
        progress.done = 2;
        progress.seen[0] = vec![Some(Duration::from_secs(1)), Some(Duration::from_secs(5))];
        assert_eq!(progress.left(), Some(Duration::from_secs(6)));
        assert_eq!(left_in_words(progress.left()), "about 6 s left");
        assert_eq!(left_in_words(Some(Duration::from_secs(7200))), "about 2.0 h left");
    }
}
