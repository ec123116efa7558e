//! Where the lines of a watch go: to a reader, into a recording, both.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use faultless_diagnosis::history::History;
use faultless_records::recording::Line;
use faultless_report::watch_json;
use faultless_report::watch_lines::{self, Columns};

use crate::failure::Failure;
use crate::watch_arguments::WatchArguments;

/// How lines are written.
enum Form {
    Columns(Columns),
    Csv,
    Json,
}

/// What reads along.
pub struct Outlets {
    reader: Option<(Box<dyn Write>, Form)>,
    recording: Option<(BufWriter<File>, PathBuf)>,
    /// What could not be written; said once, at the end.
    failure: Option<Failure>,
}

impl Outlets {
    /// Opens what the arguments name; lines go nowhere when a chart is shown.
    ///
    /// # Errors
    /// [`Failure::Failed`] for a file that cannot be written.
    pub fn open(arguments: &WatchArguments, shows_chart: bool) -> Result<Self, Failure> {
        let recording = match &arguments.record {
            Some(path) => Some((BufWriter::new(create(path)?), path.clone())),
            None => None,
        };
        let form = match (arguments.csv, arguments.json) {
            (true, _) => Form::Csv,
            (_, true) => Form::Json,
            _ => Form::Columns(Columns::default()),
        };
        let writer: Option<Box<dyn Write>> = match &arguments.output {
            Some(path) => Some(Box::new(BufWriter::new(create(path)?))),
            None if shows_chart => None,
            // The command's own output must stay what it is.
            None if !arguments.command.is_empty() => Some(Box::new(BufWriter::new(io::stderr()))),
            None => Some(Box::new(BufWriter::new(io::stdout()))),
        };
        let mut outlets = Self { reader: writer.map(|writer| (writer, form)), recording, failure: None };
        if let Some((writer, Form::Csv)) = &mut outlets.reader {
            let written = writer.write_all(watch_lines::CSV_HEADING.as_bytes());
            outlets.note_reader(written);
        }
        Ok(outlets)
    }

    /// Writes one line; `history` knows everything up to and with it.
    pub fn write(&mut self, line: &Line, history: &History) {
        if let Some((writer, form)) = &mut self.reader {
            let text = match form {
                Form::Columns(columns) => columns.text(line, history),
                Form::Csv => watch_lines::csv(line, history),
                Form::Json => watch_json::json(line),
            };
            let written = writer.write_all(text.as_bytes());
            self.note_reader(written);
        }
        if let Some((writer, _)) = &mut self.recording {
            let written = writer.write_all(watch_json::json(line).as_bytes());
            self.note_recording(written);
        }
    }

    /// Hands on what is written so far.
    pub fn flush(&mut self) {
        if let Some((writer, _)) = &mut self.reader {
            let written = writer.flush();
            self.note_reader(written);
        }
        if let Some((writer, _)) = &mut self.recording {
            let written = writer.flush();
            self.note_recording(written);
        }
    }

    /// Whether somebody who read along has gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.failure, Some(Failure::OutputClosed))
    }

    /// Ends the writing.
    ///
    /// # Errors
    /// The first thing that could not be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        self.failure.map_or(Ok(()), Err)
    }

    fn note_reader(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.reader = None;
            self.failure.get_or_insert(Failure::of_output(&error));
        }
    }

    fn note_recording(&mut self, written: io::Result<()>) {
        if let Err(error) = written
            && let Some((_, path)) = self.recording.take()
        {
            self.failure.get_or_insert(cannot_write(&path, &error));
        }
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot write {}: {error}", path.display()))
}
