//! That the tool still observes, for how long already, and what it saw, on standard error.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::progress;

/// Nothing is shown before this.
const FIRST: Duration = Duration::from_secs(1);

/// Without a terminal, a line at most this often.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// Where there is no terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// A line now and then.
    Lines,
    /// Nothing.
    Silence,
}

/// One line that changes on a terminal.
pub struct ObservingProgress {
    /// What the tool does, as in "looking".
    doing: &'static str,
    elsewhere: Elsewhere,
    bar: Option<ProgressBar>,
    limit: Option<Duration>,
    begun: Instant,
    said: Instant,
}

impl ObservingProgress {
    /// Begins now, and is to last so long, if that is known.
    #[must_use]
    pub fn start(doing: &'static str, limit: Option<Duration>, elsewhere: Elsewhere) -> Self {
        let now = Instant::now();
        Self { doing, elsewhere, bar: None, limit, begun: now, said: now }
    }

    /// Shows how far it is, and what was seen so far.
    pub fn show(&mut self, seen: &str) {
        let elapsed = self.begun.elapsed();
        if elapsed < FIRST {
            return;
        }
        let of = self.limit.map(|limit| format!(" of {:.0}", limit.as_secs_f64())).unwrap_or_default();
        let message = format!("{} for {:.0}{of} s: {seen}", self.doing, elapsed.as_secs_f64());
        if self.bar.is_none() {
            self.bar = progress::bar("{spinner} {wide_msg}");
        }
        if let Some(bar) = &self.bar {
            bar.set_message(message);
            bar.tick();
        } else if self.elsewhere == Elsewhere::Lines && self.said.elapsed() >= LINE_INTERVAL {
            crate::say(&message);
            self.said = Instant::now();
        }
    }
}
