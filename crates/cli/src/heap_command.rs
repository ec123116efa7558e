//! A command whose heaps are walked while it runs, or on its way out.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use faultless_probe::launch::launch;
use faultless_probe::process::Process;
use faultless_probe::signals::Signals;
use faultless_probe::watch::{Moment, watch_beside};
use faultless_report::heap::HeapReport;

use crate::failure::Failure;
use crate::heap_process::{self, Manner};
use crate::{subject, target};

/// Starts the command and walks its heaps after `after`, or else at its exit; `show` prints what was found at once, and
/// the command runs to its end.
///
/// # Errors
/// [`Failure`] when it cannot be started or looked at.
pub fn look(
    words: Vec<OsString>,
    after: Option<Duration>,
    manner: Manner,
    signals: &Signals,
    show: &dyn Fn(&HeapReport) -> Result<(), Failure>,
) -> Result<(), Failure> {
    subject::check_view()?;
    let command = target::find(words)?;
    let name = command.name();
    // Standard output is the report's.
    let start = target::start(command, true)?;
    let launched = launch(start, signals).map_err(|error| Failure::of_start(&name, &error))?;
    let began = Instant::now();
    let mut outcome: Option<Result<(), Failure>> = None;
    let mut observe = |moment: Moment| {
        if outcome.is_some() {
            return None;
        }
        let manner = match (moment, after) {
            (Moment::AtExit, _) => Manner::AtExit,
            (Moment::Running, None) | (Moment::Ended(_), _) => return None,
            (Moment::Running, Some(after)) => match after.checked_sub(began.elapsed()) {
                Some(left) if !left.is_zero() => return Some(left),
                _ => manner,
            },
        };
        let report = Process::open(launched.pid())
            .map_err(Failure::of_process)
            .and_then(|process| heap_process::look(&process, manner));
        outcome = Some(report.and_then(|mut report| {
            if moment == Moment::AtExit && after.is_some() {
                report.remarks.push(
                    "It ended before the time it was to be looked at: this is how it was then.".to_owned(),
                );
            }
            show(&report)
        }));
        None
    };
    watch_beside(&launched, signals, None, &mut observe).map_err(|error| Failure::of_watch(&name, error))?;
    outcome.unwrap_or_else(|| {
        Err(Failure::Failed(format!(
            "{name} ended before it could be looked at: tracing was refused, so give a time at which it still runs (--after 2s)"
        )))
    })
}
