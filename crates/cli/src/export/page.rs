//! What there is to scrape: the fleet as it was last seen, shared by who looks and who answers.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use faultless_diagnosis::fleet::Fleet;
use faultless_probe::clock;
use faultless_report::prometheus_text::{self, Look, Own};

/// Figures are served for so many intervals, and at least so long, when no round of looks comes to its end.
const OLD: (u32, Duration) = (10, Duration::from_secs(60));

/// The figures of one moment after the other.
pub struct MetricsPage {
    fleet: Mutex<Fleet>,
    own: Mutex<Own>,
    /// When a round was over last; at first, when it was made.
    last_round: Mutex<Instant>,
    /// Figures older than this are not served.
    keeps: Duration,
    written: Mutex<Written>,
}

/// The page as it was asked for last.
#[derive(Default)]
struct Written {
    text: Arc<String>,
    /// Nothing was seen since.
    is_current: bool,
}

impl MetricsPage {
    /// Of a fleet in which nobody was seen yet; `interval` is the time from one round of looks to the next.
    pub fn new(fleet: Fleet, interval: Duration) -> Self {
        Self {
            fleet: Mutex::new(fleet),
            own: Mutex::new(Own::default()),
            last_round: Mutex::new(Instant::now()),
            keeps: OLD.1.max(interval.saturating_mul(OLD.0)),
            written: Mutex::default(),
        }
    }

    /// The fleet; who scrapes waits meanwhile.
    pub fn fleet(&self) -> MutexGuard<'_, Fleet> {
        locked(&self.fleet)
    }

    /// Counts a look into a process.
    pub fn count_look(&self, kind: Look, took: Duration, has_failed: bool) {
        let mut own = locked(&self.own);
        let looks = own.looks.entry(kind).or_default();
        looks.times += 1;
        looks.took += took;
        looks.failed += u64::from(has_failed);
        drop(own);
        locked(&self.written).is_current = false;
    }

    /// All that are followed were looked at.
    pub fn end_round(&self) {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        locked(&self.own).last_round_s = Some(since_1970.as_millis() as f64 / 1e3);
        *locked(&self.last_round) = Instant::now();
        locked(&self.written).is_current = false;
    }

    /// Why the figures are not those of the present, in one line.
    pub fn is_old(&self, now: Instant) -> Option<String> {
        let age = now.saturating_duration_since(*locked(&self.last_round));
        (age > self.keeps).then(|| {
            format!(
                "the processes were last looked at {} s ago: one of them, or the exporter, hangs in the kernel",
                age.as_secs()
            )
        })
    }

    /// The page after the last look: written when somebody asks, and once for all who do.
    pub fn text(&self) -> Arc<String> {
        let mut written = locked(&self.written);
        if !written.is_current {
            // Who still sends the last one keeps it; else its memory serves again, in whatever thread: an arena of each would keep its own.
            let mut text = Arc::try_unwrap(mem::take(&mut written.text)).unwrap_or_default();
            let last_bytes = text.len();
            text.clear();
            text.shrink_to(2 * last_bytes);
            let own = Own { processor: clock::own_processor_time(), ..locked(&self.own).clone() };
            prometheus_text::write(&mut text, &self.fleet(), &own);
            *written = Written { text: Arc::new(text), is_current: true };
        }
        Arc::clone(&written.text)
    }
}

/// A panic ends the program, so nothing is left half changed.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use faultless_diagnosis::fleet::Grouping;

    use super::*;

    #[test]
    fn figures_are_old_ten_intervals_after_the_last_round_and_never_before_a_minute() {
        for (interval_s, lasts_s) in [(1, 60), (30, 300)] {
            let page = MetricsPage::new(Fleet::new(Grouping::Name, 0), Duration::from_secs(interval_s));
            assert!(!page.text().contains("last_round"), "there was none");
            page.end_round();
            let later = |s| Instant::now() + Duration::from_secs(s);
            assert_eq!(page.is_old(later(lasts_s - 10)), None);
            assert!(page.is_old(later(lasts_s + 10)).is_some_and(|reason| reason.lines().count() == 1));
            assert!(page.text().contains("faultless_exporter_last_round_timestamp_seconds "));
        }
    }
    #[test]
    fn a_page_is_written_once_between_two_looks_and_in_the_same_place_when_nobody_sends_it() {
        let page = MetricsPage::new(Fleet::new(Grouping::Name, 0), Duration::from_secs(5));
        page.end_round();
        let first = page.text();
        assert!(Arc::ptr_eq(&first, &page.text()));
        page.count_look(Look::Heap, Duration::ZERO, false);
        let second = page.text();
        let looks = "faultless_exporter_looks_total{at=\"heap\"} 1";
        assert!(second.contains(looks) && !first.contains(looks), "{second}");
        let place = second.as_ptr();
        drop((first, second));
        page.end_round();
        let third = page.text();
        assert!(third.contains(looks), "{third}");
        assert_eq!(third.as_ptr(), place);
    }
}
