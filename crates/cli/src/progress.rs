//! What a consultation is doing and how long it will still take, on standard error.

use std::io::IsTerminal;
use std::time::Duration;

use faultless_probe::terminal;
use faultless_report::plain::plain;
use faultless_trial::command::Run;
use faultless_trial::comparison::Observer;
use faultless_trial::turns::{Turn, turns};
use indicatif::{ProgressBar, ProgressStyle};

/// How far the runs are.
pub const RUNS: &str = "{bar:20} {pos}/{len} {wide_msg}";

/// A bar on a terminal, lines elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    arms: Vec<String>,
    rounds: u32,
    turns: Vec<Turn>,
    /// Expected time of one run of each arm: the first look's until the arm itself has run.
    expected: Vec<Duration>,
    done: usize,
}

impl Progress {
    /// Before the arms are known.
    #[must_use]
    pub fn start() -> Self {
        let bar = bar("{spinner} {elapsed} {wide_msg}");
        if let Some(bar) = &bar {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, arms: Vec::new(), rounds: 0, turns: Vec::new(), expected: Vec::new(), done: 0 }
    }

    /// Says what is going on.
    pub fn say(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(plain(message)),
            None => crate::say(message),
        }
    }

    /// The arms are known; each run is expected to take as long as the first look.
    pub fn plan(&mut self, arms: Vec<String>, rounds: u32, first_look: Duration) {
        self.expected = vec![first_look; arms.len()];
        self.rounds = rounds;
        self.turns = turns(rounds, 1, arms.len()).collect();
        self.done = 0;
        if let Some(bar) = &self.bar {
            bar.set_style(style(RUNS));
            bar.set_length(self.turns.len() as u64);
            bar.set_position(0);
        }
        self.arms = arms;
    }

    fn left(&self) -> Duration {
        self.turns[self.done..].iter().map(|turn| self.expected[turn.contender]).sum()
    }
}

impl Observer for Progress {
    fn begins(&mut self, turn: Turn) {
        let left = self.left().as_secs();
        let message = format!(
            "round {} of {}: {}, about {left} s left",
            turn.round + 1,
            self.rounds,
            self.arms[turn.contender]
        );
        self.say(&message);
    }

    fn ended(&mut self, turn: Turn, run: &Run) {
        self.done += 1;
        self.expected[turn.contender] = run.measurement.elapsed;
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
