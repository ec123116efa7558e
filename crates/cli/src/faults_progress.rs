//! That the tool still records, for how long already, and how much it has seen, on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown before this.
const FIRST: Duration = Duration::from_secs(1);

/// One line that changes, on a terminal only.
pub struct FaultsProgress {
    bar: Option<ProgressBar>,
    limit: Option<Duration>,
    begun: Instant,
}

impl FaultsProgress {
    /// Begins now, and is to last so long, if that is known.
    #[must_use]
    pub fn start(limit: Option<Duration>) -> Self {
        Self { bar: None, limit, begun: Instant::now() }
    }

    /// Shows how far it is.
    pub fn show(&mut self, samples: u64) {
        let elapsed = self.begun.elapsed();
        if elapsed < FIRST || !std::io::stderr().is_terminal() {
            return;
        }
        let of = self.limit.map(|limit| format!(" of {:.0}", limit.as_secs_f64())).unwrap_or_default();
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar
        });
        let seconds = elapsed.as_secs_f64();
        bar.set_message(format!(
            "recording for {seconds:.0}{of} s: {samples} page faults looked at (Ctrl-C ends it)"
        ));
        bar.tick();
    }
}

impl Drop for FaultsProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
