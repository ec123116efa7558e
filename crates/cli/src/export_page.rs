//! What there is to scrape: the fleet as it was last seen, shared by who looks and who answers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faultless_diagnosis::fleet::Fleet;
use faultless_probe::clock;
use faultless_report::prometheus_text::{self, Look, Own};

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

    /// Counts a look into a process.
    pub fn count_look(&self, kind: Look, took: Duration, has_failed: bool) {
        let mut own = locked(&self.own);
        let looks = own.looks.entry(kind).or_default();
        looks.times += 1;
        looks.took += took;
        looks.failed += u64::from(has_failed);
    }

    /// The page.
    pub fn text(&self) -> String {
        let own = Own { processor: clock::own_processor_time(), ..locked(&self.own).clone() };
        prometheus_text::text(&self.fleet(), &own, env!("CARGO_PKG_VERSION"))
    }
}

/// A panic ends the program, so nothing is left half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
