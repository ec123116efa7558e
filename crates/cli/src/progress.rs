//! What a consultation is doing and how long it will still take, on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use faultless_probe::terminal;
use faultless_report::plain::plain;
use faultless_trial::command::Run;
use faultless_trial::comparison::{Observer, Turn};
use indicatif::{ProgressBar, ProgressStyle};

/// How far the runs are.
pub const RUNS: &str = "{bar:20} {pos}/{len} {wide_msg}";

/// A bar on a terminal, lines elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    arms: Vec<String>,
    rounds: usize,
    /// Expected time of one run of each arm: the first look's until the arm itself has run.
    expected: Vec<Duration>,
    done: usize,
    begun: Instant,
}

impl Progress {
    /// Before the arms are known.
    #[must_use]
    pub fn start() -> Self {
        let bar = bar("{spinner} {elapsed} {wide_msg}");
        if let Some(bar) = &bar {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, arms: Vec::new(), rounds: 0, expected: Vec::new(), done: 0, begun: Instant::now() }
    }

    /// Says what is going on.
    pub fn say(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(plain(message)),
            None => crate::say(message),
        }
    }

    /// The arms are known; each run is expected to take as long as the first look.
    pub fn plan(&mut self, arms: Vec<String>, rounds: usize, first_look: Duration) {
        self.expected = vec![first_look; arms.len()];
        self.rounds = rounds;
        self.done = 0;
        self.begun = Instant::now();
        if let Some(bar) = &self.bar {
            bar.set_style(style(RUNS));
            bar.set_length((arms.len() * rounds) as u64);
            bar.set_position(0);
        }
        self.arms = arms;
    }

    fn left(&self, turn: Turn) -> Duration {
        let whole_rounds = u32::try_from(self.rounds - turn.round - 1).unwrap_or(u32::MAX);
        let a_round: Duration = self.expected.iter().sum();
        let place = self.done % self.arms.len().max(1);
        let this_round: Duration =
            (place..self.arms.len()).map(|place| self.expected[(place + turn.round) % self.arms.len()]).sum();
        this_round + a_round.saturating_mul(whole_rounds)
    }
}

impl Observer for Progress {
    fn begins(&mut self, turn: Turn) {
        let left = self.left(turn).as_secs();
        let message = format!(
            "round {} of {}: {}, about {left} s left",
            turn.round + 1,
            self.rounds,
            self.arms[turn.arm]
        );
        self.say(&message);
    }

    fn ended(&mut self, turn: Turn, run: &Run) {
        self.done += 1;
        self.expected[turn.arm] = run.measurement.elapsed;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }
}

/// A bar on standard error, where that is a terminal; dropped, it is gone from there.
pub fn bar(template: &str) -> Option<ProgressBar> {
    let is_drawn = std::io::stderr().is_terminal() && terminal::can_be_drawn_on();
    is_drawn.then(|| ProgressBar::new_spinner().with_style(style(template)))
}

/// A template that does not parse leaves indicatif's own.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
