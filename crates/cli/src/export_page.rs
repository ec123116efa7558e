//! What there is to scrape: the fleet as it was last seen, shared by who looks and who answers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faultless_diagnosis::fleet::Fleet;
use faultless_probe::clock;
use faultless_report::prometheus_text::{self, Own};

/// The figures of one moment after the other.
pub struct Page {
    fleet: Mutex<Fleet>,
    own: Mutex<Own>,
}

impl Page {
    /// Of a fleet in which nobody was seen yet.
    pub fn new(fleet: Fleet) -> Self {
        Self { fleet: Mutex::new(fleet), own: Mutex::new(Own::default()) }
    }

    /// The fleet; who scrapes waits meanwhile.
    pub fn fleet(&self) -> MutexGuard<'_, Fleet> {
        locked(&self.fleet)
    }

    /// Counts a look at a heap.
    pub fn count_walk(&self, took: Duration, has_failed: bool) {
        let mut own = locked(&self.own);
        own.walks += 1;
        own.walk_time += took;
        own.failed_walks += u64::from(has_failed);
    }

    /// The page.
    pub fn text(&self) -> String {
        let own = Own { processor: clock::own_processor_time(), ..*locked(&self.own) };
        prometheus_text::text(&self.fleet(), &own, env!("CARGO_PKG_VERSION"))
    }
}

/// A panic ends the program, so nothing is left half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
