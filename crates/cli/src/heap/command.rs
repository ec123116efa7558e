//! A command whose heaps are walked while it runs, or on its way out.

use std::ffi::OsString;
use std::time::Duration;

use faultless_probe::signals::Signals;
use faultless_probe::watch::Moment;
use faultless_report::heap::HeapView;

use super::process;
use super::process::Manner;
use crate::failure::Failure;
use crate::target;

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
    show: &dyn Fn(&HeapView) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let unseen = "ended before it could be looked at: tracing was refused, so give a time at which it still runs (--after 2s)";
    // Standard output is the report's.
    target::look_once(words, after, true, signals, unseen, &|process, moment, said| {
        let manner = match moment {
            Moment::AtExit => Manner::AtExit,
            // Others cannot be stopped beside a thread that we trace already.
            Moment::FirstThreadAtExit => Manner::Running,
            Moment::Running | Moment::Ended(_) => manner,
        };
        let mut report = process::look(process, manner)?;
        report.remarks.extend(said.iter().map(|text| sentence(text)));
        show(&report)
    })
}

/// With a capital letter and a full stop.
pub fn sentence(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    format!("{}{rest}.", first.to_uppercase())
}
