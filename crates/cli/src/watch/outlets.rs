//! Where the lines of a watch go: to a reader, into a recording, both.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use faultless_diagnosis::history::History;
use faultless_probe::signals::Signals;
use faultless_probe::terminal;
use faultless_probe::wakeup::Wakeup;
use faultless_records::recording::Line;
use faultless_report::watch;
use faultless_report::watch::lines::Columns;

use super::arguments::WatchArguments;
use super::line_file::LineFile;
use super::reader::Reader;
use crate::failure::Failure;
use crate::notes::Told;
use crate::output_file;

/// How lines are written.
enum Form {
    Columns(Columns),
    Csv,
    Json,
}

/// What reads along.
pub struct Outlets {
    reader: Option<(Reader, Form)>,
    recording: Option<Reader>,
    /// Files that keep what they hold until the first line is there.
    unbegun: Vec<File>,
    /// A chart is shown, or a picture drawn at the end, whoever reads along.
    shows: bool,
    /// Notes that are no lines.
    told: Told,
    /// What could not be written; said once, at the end.
    failure: Option<Failure>,
}

impl Outlets {
    /// Opens what the arguments name; lines go nowhere when a chart is shown. What the files hold is lost with the first line,
    /// not before. `input` is a file that is read meanwhile.
    ///
    /// # Errors
    /// [`Failure::Failed`] for a file that cannot be written, [`Failure::Usage`] where two are one.
    pub fn open(
        arguments: &WatchArguments,
        shows_chart: bool,
        input: Option<&File>,
    ) -> Result<Self, Failure> {
        let mut unbegun = Vec::new();
        let mut open = |path: &Path| -> Result<(File, bool), Failure> {
            output_file::refuse_dash(path)?;
            let failed = |error: io::Error| Failure::of_writing(path, &error);
            let is_stream = output_file::is_stream(path);
            let file = match is_stream {
                true => output_file::open_stream(path),
                // Appending: what empties it meanwhile, as logrotate does, leaves no hole in front of the next line.
                false => OpenOptions::new().append(true).create(true).open(path),
            }
            .map_err(failed)?;
            for other in input.into_iter().chain(&unbegun) {
                if output_file::are_one(&file, other) {
                    return Err(output_file::named_twice(path));
                }
            }
            if !is_stream {
                unbegun.push(file.try_clone().map_err(failed)?);
            }
            Ok((file, !is_stream))
        };
        let recording = match &arguments.record {
            Some(path) => {
                let (file, is_own) = open(path)?;
                Some(Reader::new(LineFile::new(file, is_own), Some(path.clone())))
            }
            None => None,
        };
        let form = match (arguments.csv, arguments.json) {
            (true, _) => Form::Csv,
            (_, true) => Form::Json,
            _ => {
                // Files have all figures; the lines of a command go to standard error.
                let is_file = arguments.output.is_some()
                    || (!arguments.command.is_empty() && !io::stderr().is_terminal());
                Form::Columns(Columns::within(terminal::columns().filter(|_| !is_file)))
            }
        };
        let own = |stream: BorrowedFd<'_>| {
            let file = stream.try_clone_to_owned().map(File::from);
            file.map(|file| (file, false)).map_err(|error| Failure::of_output(&error))
        };
        let reader = match &arguments.output {
            Some(path) => Some(open(path)?),
            None if shows_chart => None,
            // The command's own output must stay what it is.
            None if !arguments.command.is_empty() => Some(own(io::stderr().as_fd())?),
            // A recording or picture is worth watching for, whoever reads along.
            None if arguments.record.is_some() || arguments.plot.is_some() => {
                Some(own(io::stdout().as_fd())?)
            }
            None => Some(own(crate::output()?.as_fd())?),
        };
        let mut reader = reader
            .map(|(file, is_own)| (Reader::new(LineFile::new(file, is_own), arguments.output.clone()), form));
        if let Some((reader, Form::Csv)) = &mut reader {
            reader.push(watch::lines::CSV_HEADING);
        }
        let shows = shows_chart || arguments.plot.is_some();
        Ok(Self { reader, recording, unbegun, shows, told: Told::default(), failure: None })
    }

    /// Writes one line; `history` knows everything up to and with it.
    pub fn write(&mut self, line: &Line, history: &History) {
        for file in std::mem::take(&mut self.unbegun) {
            let _ = file.set_len(0);
        }
        if let Some((reader, form)) = &mut self.reader {
            // CSV has rows of figures alone.
            if let (Form::Csv, Line::Note(note)) = (&form, line) {
                self.told.tell(&note.text);
            }
            let text = match form {
                Form::Columns(columns) => columns.text(line, history),
                Form::Csv => watch::lines::csv(line, history),
                Form::Json => watch::json::json(line),
            };
            reader.push(&text);
        }
        if let Some(recording) = &mut self.recording {
            recording.push(&watch::json::json(line));
        }
    }

    /// Hands on what is written so far, as far as it is taken at once.
    pub fn flush(&mut self) {
        if let Some((reader, _)) = &mut self.reader
            && let Err(error) = reader.write()
        {
            let failure = match error.kind() {
                // Who has read enough of a pipe just goes.
                io::ErrorKind::BrokenPipe => Failure::of_output(&error),
                _ => reader.failure(&error),
            };
            self.reader = None;
            self.failure.get_or_insert(failure);
        }
        if let Some(recording) = &mut self.recording
            && let Err(error) = recording.write()
        {
            let failure = recording.failure(&error);
            self.recording = None;
            self.failure.get_or_insert(failure);
        }
    }

    /// Waits until the reader has taken everything, but no longer than `limit`; an interruption ends the waiting, and is
    /// returned.
    ///
    /// # Errors
    /// When the kernel does not let us wait.
    pub fn drain(&mut self, signals: &Signals, limit: Option<Duration>) -> io::Result<Option<i32>> {
        let (wakeup, begun) = (Wakeup::new(signals)?, Instant::now());
        self.flush();
        while let Some(descriptor) = self.waits_for() {
            let left = limit.unwrap_or(Duration::MAX).saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            if wakeup.wait(&[], Some(descriptor), left)?.by_signal
                && let Some(number) = signals.pending_interruption()
            {
                return Ok(Some(number));
            }
            self.flush();
        }
        Ok(None)
    }

    /// Whether nobody reads lines along.
    #[must_use]
    pub fn has_no_reader(&self) -> bool {
        self.reader.is_none()
    }

    /// Can be written when a slow reader takes more; none when all have taken all.
    #[must_use]
    pub fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.readers().find(|reader| reader.is_waited_for()).map(Reader::descriptor)
    }

    /// Whether a slow reader is so far behind that nothing should be added.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.readers().any(Reader::is_behind)
    }

    fn readers(&self) -> impl Iterator<Item = &Reader> {
        self.reader.iter().map(|(reader, _)| reader).chain(&self.recording)
    }

    /// Whether nothing that was to take the lines is left: who read along has gone, or the disk is full.
    #[must_use]
    pub fn are_closed(&self) -> bool {
        self.failure.is_some() && self.reader.is_none() && self.recording.is_none() && !self.shows
    }

    /// Ends the writing.
    ///
    /// # Errors
    /// The first thing that could not be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        self.failure.map_or(Ok(()), Err)
    }
}
