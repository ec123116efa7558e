//! `faultless watch`: sizes, faults and processor time of processes over time.

pub mod arguments;
mod audience;
mod chart;
mod keys;
mod line_file;
mod outlets;
mod reader;
mod replay;
pub mod screen;
pub mod session;
mod spool;

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use faultless_diagnosis::history::History;
use faultless_probe::signals::Signals;
use faultless_probe::terminal;
use faultless_probe::wakeup;
use faultless_records::measurement::Ending;
use faultless_records::recording::{Begin, FORMAT, Line};
use faultless_report::plot;
use faultless_report::watch;

use crate::failure::Failure;
use crate::followed;
use crate::output_file::{self, OutputFile};
use crate::picture::Form;
use crate::subject;
use arguments::WatchArguments;
use audience::{Nobody, Onlooker, Watchers};
use chart::Subject;
use outlets::Outlets;
use screen::Screen;
use session::{Audience, Session, Times};
use spool::Spool;

/// Watches what the arguments name.
///
/// # Errors
/// [`Failure`].
pub fn watch(
    arguments: WatchArguments,
    hold_signals: impl FnOnce() -> Result<Signals, Failure>,
) -> Result<Ending, Failure> {
    if let Some(path) = &arguments.replay {
        return show_recording(path, &arguments, hold_signals);
    }
    let signals = &hold_signals()?;
    subject::check_view()?;
    let subject = arguments.followed.in_words(&arguments.command)?;
    let shows_chart = shows_chart(&arguments);
    let command = followed::command_of(&arguments.command)?;
    let mut sampler = arguments.followed.sampler(arguments.pss)?;
    // After everything that may be refused: files are not touched for nothing.
    let picture = picture(&arguments)?;
    let outlets = Outlets::open(&arguments, shows_chart, None)?;
    let spool = match &command {
        Some(_) if shows_chart => Some(Spool::create()?),
        _ => None,
    };
    // Dropped, the terminal is what it was, whatever the outcome.
    let whose = if command.is_some() { Subject::Command } else { Subject::Processes };
    let onlooker: Box<dyn Onlooker> =
        if shows_chart { Box::new(Screen::open(whose)?) } else { Box::new(Nobody) };
    let launched = match command {
        Some(command) => {
            let streams = spool.as_ref().map_or(Ok([None, None, None]), Spool::streams)?;
            Some(followed::start(command, streams, &mut sampler, signals)?)
        }
        None => None,
    };
    let audience = Watchers { history: History::new(), outlets, onlooker };
    let mut session = Session { sampler, audience, signals, launched: launched.as_ref() };
    session.audience.take(Line::Begin(begin(&arguments, subject)));
    let times = Times { interval: arguments.interval, limit: arguments.limit };
    let ending = session.run(times);
    let Watchers { history, outlets, onlooker } = session.audience;
    drop(onlooker);
    if let Some(spool) = spool {
        spool.print();
    }
    // A reader of standard error who took no more lines when we were asked to end takes no sums either.
    if outlets.waits_for().is_none() || wakeup::is_writable(std::io::stderr().as_fd()).unwrap_or(true) {
        let _ = write!(std::io::stderr(), "{}", watch::summary::text(&history, terminal::columns()));
    }
    let plotted = draw(picture, &history);
    let written = outlets.finish().and(plotted);
    match (ending?, written) {
        // Who reads our lines no more takes nothing from the command's status.
        (ending, Err(Failure::OutputClosed)) if launched.is_some() => Ok(ending),
        (ending, written) => written.map(|()| ending),
    }
}

/// Shows what was recorded earlier.
fn show_recording(
    path: &std::path::Path,
    arguments: &WatchArguments,
    hold_signals: impl FnOnce() -> Result<Signals, Failure>,
) -> Result<Ending, Failure> {
    // Before signals are held: a pipe that nobody writes into must not outlast them.
    let input = replay::open(path)?;
    let signals = &hold_signals()?;
    let picture = picture(arguments)?;
    let shows_chart = shows_chart(arguments) && arguments.plot.is_none();
    let mut outlets = Outlets::open(arguments, shows_chart, Some(&input))?;
    let history = replay::replay(input, path, &mut outlets, signals)?;
    replay::drain(&mut outlets, signals)?;
    if shows_chart {
        replay::look_at(&history, &mut Screen::open(Subject::Recording)?, signals)?;
    }
    let _ = write!(std::io::stderr(), "{}", watch::summary::text(&history, terminal::columns()));
    draw(picture, &history)?;
    outlets.finish()?;
    Ok(Ending::Exited(0))
}

/// The file of a picture that is to be drawn at the end.
fn picture(arguments: &WatchArguments) -> Result<Option<(Form, OutputFile)>, Failure> {
    let Some(path) = &arguments.plot else { return Ok(None) };
    let (form, file) = (Form::of(path)?, OutputFile::create(path)?);
    let others = [&arguments.record, &arguments.output, &arguments.replay];
    if others.into_iter().flatten().any(|other| file.is_at(other)) {
        return Err(output_file::named_twice(path));
    }
    Ok(Some((form, file)))
}

fn draw(picture: Option<(Form, OutputFile)>, history: &History) -> Result<(), Failure> {
    picture
        .map_or(Ok(()), |(form, file)| form.write(file, &plot::scene(history, &plot::Choice::whole(history))))
}

/// The first line.
fn begin(arguments: &WatchArguments, subject: String) -> Begin {
    Begin {
        format: FORMAT.into(),
        tool_version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |time| time.as_millis() as f64 / 1e3),
        interval_s: arguments.interval.as_secs_f64(),
        subject,
    }
}

fn shows_chart(arguments: &WatchArguments) -> bool {
    let wants_lines = arguments.lines || arguments.csv || arguments.json;
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    !wants_lines && is_terminal && terminal::can_be_drawn_on()
}
