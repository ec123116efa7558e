//! Reads a recording again, line by line, however long it is.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use faultless_diagnosis::history::History;
use faultless_probe::signals::Signals;
use faultless_probe::wakeup::Wakeup;
use faultless_records::recording::{Line, Note};
use faultless_report::plain::plain;
use faultless_report::saved_form;
use faultless_report::watch;

use super::audience::Onlooker;
use super::outlets::Outlets;
use super::session::{ASKED_EVERY, Wish};
use crate::failure::Failure;
use crate::saved_file;

/// A line longer than this is no line of a recording.
const LONGEST_LINE: u64 = 1 << 20;

/// So many lines are handed on before the reader, and our signals, have their turn.
const LINES_AT_ONCE: u64 = 256;

/// The file of a recording; `-` is standard input.
///
/// # Errors
/// [`Failure::Failed`] when it cannot be read.
pub fn open(path: &Path) -> Result<File, Failure> {
    saved_file::open(path).map_err(|error| saved_file::unreadable(path, error))
}

/// Reads until a signal comes, even while nothing does: a recording may be a pipe.
struct Interruptible<'signals> {
    file: File,
    signals: &'signals Signals,
    wakeup: Wakeup,
    /// The signal that ended the reading.
    interruption: Option<i32>,
}

impl<'signals> Interruptible<'signals> {
    fn new(file: File, signals: &'signals Signals) -> io::Result<Self> {
        Ok(Self { file, signals, wakeup: Wakeup::new(signals)?, interruption: None })
    }
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let woken = self.wakeup.wait(&[self.file.as_fd()], None, Duration::from_secs(3600))?;
            if woken.by_signal {
                self.interruption = self.signals.pending_interruption();
            }
            if self.interruption.is_some() {
                return Err(io::Error::other("interrupted"));
            }
            if woken.by(0) {
                return self.file.read(buffer);
            }
        }
    }
}

/// Reads the recording and hands its lines on. One that is cut off or damaged is shown up to there, with a note.
///
/// # Errors
/// [`Failure::Failed`] when the file cannot be read or its first line is not a recording's, [`Failure::Interrupted`] by a signal.
pub fn replay(file: File, path: &Path, outlets: &mut Outlets, signals: &Signals) -> Result<History, Failure> {
    let shown = plain(&saved_file::shown(path));
    let cannot_read = |error: io::Error| saved_file::unreadable(path, error);
    let mut reader = BufReader::new(Interruptible::new(file, signals).map_err(cannot_read)?);
    let mut history = History::new();
    let mut text = Vec::new();
    for number in 1_u64.. {
        text.clear();
        let mut read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut text);
        if number == 1 && text.trim_ascii() == b"{" {
            // Of another form, which is told by what follows.
            read = read.and(reader.by_ref().take(saved_file::HEAD_BYTES).read_to_end(&mut text));
        }
        if let Some(number) = reader.get_ref().interruption {
            return Err(Failure::Interrupted(number));
        }
        read.map_err(cannot_read)?;
        if text.is_empty() {
            break;
        }
        let line = line_of(&text);
        if number == 1 && line.is_err() {
            refuse(&text, path)?;
        }
        match line.and_then(|line| history.add(line.clone()).map(|()| line)) {
            Ok(line) => outlets.write(&line, &history),
            Err(reason) if number == 1 => {
                return Err(Failure::Failed(format!(
                    "cannot read {shown} as a recording of faultless watch --record: {}",
                    plain(&reason)
                )));
            }
            Err(reason) => {
                let text = format!(
                    "the recording is damaged in line {number} and shown up to there: {}",
                    plain(&reason)
                );
                note(&mut history, outlets, text);
                return Ok(history);
            }
        }
        if number.is_multiple_of(LINES_AT_ONCE) {
            drain(outlets, signals)?;
        }
        if outlets.are_closed() {
            return Ok(history);
        }
    }
    if history.begin.format.is_empty() {
        return Err(Failure::Failed(format!("{shown} is empty: no recording of faultless watch --record")));
    }
    if history.end.is_none() {
        note(&mut history, outlets, "the recording was cut off: its last line is missing".into());
    }
    Ok(history)
}

/// Waits until the reader has taken what was shown.
///
/// # Errors
/// [`Failure::Interrupted`] by a signal, [`Failure::Failed`] when the kernel does not let us wait.
pub fn drain(outlets: &mut Outlets, signals: &Signals) -> Result<(), Failure> {
    let interrupted = outlets.drain(signals, None);
    let interrupted =
        interrupted.map_err(|error| Failure::Failed(format!("cannot wait for the reader: {error}")))?;
    match interrupted.or_else(|| signals.pending_interruption()) {
        Some(number) => Err(Failure::Interrupted(number)),
        None => Ok(()),
    }
}

/// Lets somebody look at it until they have seen enough; ends by itself where nobody is there.
///
/// # Errors
/// [`Failure::Interrupted`] by a signal, [`Failure::Failed`] when the kernel does not let us wait.
pub fn look_at(history: &History, onlooker: &mut dyn Onlooker, signals: &Signals) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("cannot wait for keys: {error}"));
    let wakeup = Wakeup::new(signals).map_err(failed)?;
    loop {
        onlooker.show(history);
        let input: Vec<_> = onlooker.input().into_iter().collect();
        let woken = wakeup.wait(&input, None, ASKED_EVERY).map_err(failed)?;
        drop(input);
        if woken.by_signal
            && let Some(number) = signals.pending_interruption()
        {
            return Err(Failure::Interrupted(number));
        }
        if matches!(onlooker.answer(history), Wish::End(_)) || !onlooker.lingers() {
            return Ok(());
        }
    }
}

/// Refuses what does not begin as a recording of a watch, of whatever version.
fn refuse(head: &[u8], path: &Path) -> Result<(), Failure> {
    if matches!(saved_form::kind_and_reader(head), Some((saved_form::WATCH, _))) {
        return Ok(());
    }
    Err(match saved_file::of_another(path, head) {
        Some(text) => Failure::Failed(text),
        None => saved_file::unreadable(path, "it is no recording of faultless watch --record"),
    })
}

fn line_of(bytes: &[u8]) -> Result<Line, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    watch::json::parse(text)
}

fn note(history: &mut History, outlets: &mut Outlets, text: String) {
    // The chart is not there yet, and has no room for it.
    if outlets.has_no_reader() {
        crate::say(&text);
    }
    let line = Line::Note(Note { t: history.latest_s, text });
    // Other programs that read the lines along must not take it for a recorded one.
    if history.add(line.clone()).is_ok() {
        outlets.write(&line, history);
    }
}
