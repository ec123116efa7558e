//! `faultless watch`: sizes, faults and processor time of processes over time.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use faultless_diagnosis::history::History;
use faultless_probe::launch::{Launch, Launched, launch};
use faultless_probe::process_list::{Matcher, Selection};
use faultless_probe::program;
use faultless_probe::sampler::Sampler;
use faultless_probe::signals::Signals;
use faultless_probe::wakeup;
use faultless_probe::watched_group::WatchedGroup;
use faultless_records::measurement::Ending;
use faultless_records::recording::{Begin, FORMAT, Line};
use faultless_report::plain::plain;
use faultless_report::{plot, png, watch_summary};
use regex_lite::Regex;

use crate::failure::Failure;
use crate::output_file::{self, OutputFile};
use crate::subject;
use crate::watch_arguments::WatchArguments;
use crate::watch_outlets::Outlets;
use crate::watch_replay;
use crate::watch_screen::Screen;
use crate::watch_session::{Nobody, Session, Times};
use crate::watch_spool::Spool;

/// Watches what the arguments name.
///
/// # Errors
/// [`Failure`].
pub fn watch(arguments: WatchArguments, signals: &Signals) -> Result<Ending, Failure> {
    if let Some(path) = &arguments.replay {
        return show_recording(path, &arguments, signals);
    }
    subject::check_view()?;
    let subject = subject(&arguments)?;
    let groups = arguments.cgroup.iter().map(|path| WatchedGroup::find(path));
    let groups = groups
        .collect::<Result<Vec<_>, _>>()
        .map_err(|reason| Failure::Failed(format!("--cgroup: {}", plain(&reason))))?;
    let matcher = matcher(&arguments)?;
    let shows_chart = shows_chart(&arguments);
    let program = match arguments.command.first() {
        Some(name) => {
            let path = std::env::var_os("PATH");
            let shown = name.to_string_lossy().into_owned();
            Some(program::find(name, path.as_deref()).map_err(|error| Failure::of_lookup(&shown, error))?)
        }
        None => None,
    };

    let selection = Selection { matcher, with_children: arguments.children };
    let rollup_every = (!arguments.pss.is_zero()).then_some(arguments.pss);
    let mut sampler = Sampler::new(selection, rollup_every);
    let begin = Begin {
        format: FORMAT.into(),
        tool_version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |time| time.as_millis() as f64 / 1e3),
        interval_s: arguments.interval.as_secs_f64(),
        subject,
    };
    for pid in &arguments.pid {
        if *pid <= 0 {
            return Err(Failure::Usage(format!("a process number is above 0, not {pid}")));
        }
        sampler.add(*pid).map_err(Failure::of_process)?;
    }
    for group in groups {
        sampler.add_group(group);
    }
    // After everything that may be refused: files are not touched for nothing.
    let plot = Plot::create(&arguments)?;
    let outlets = Outlets::open(&arguments, shows_chart, None)?;
    let spool = match program {
        Some(_) if shows_chart => Some(Spool::create()?),
        _ => None,
    };
    let launched = match program {
        Some(program) => Some(start(&arguments, program, spool.as_ref(), signals)?),
        None => None,
    };
    if let Some(launched) = &launched
        && let Err(error) = sampler.add_started(launched.pid())
    {
        sampler.note(&format!("the command was not seen: {error}"));
    }
    let times = Times { interval: arguments.interval, limit: arguments.limit };
    let mut session =
        Session { sampler, history: History::new(), outlets, signals, launched: launched.as_ref() };
    session.add(Line::Begin(begin));
    let ending = if shows_chart {
        // Dropped, the terminal is what it was, whatever the outcome.
        Screen::open().and_then(|mut screen| session.run(times, &mut screen))
    } else {
        session.run(times, &mut Nobody)
    };
    let (history, outlets) = (session.history, session.outlets);
    if let Some(spool) = spool {
        spool.print();
    }
    // A reader of standard error who took no more lines when we were asked to end takes no sums either.
    if outlets.waits_for().is_none() || wakeup::is_writable(std::io::stderr().as_fd()).unwrap_or(true) {
        let _ = write!(std::io::stderr(), "{}", watch_summary::text(&history));
    }
    let plotted = plot.map_or(Ok(()), |plot| plot.write(&history));
    let written = outlets.finish().and(plotted);
    match (ending, launched.is_some()) {
        (Ok(ending), true) => {
            if let Err(Failure::Failed(message)) = written {
                crate::say(&message);
            }
            Ok(ending)
        }
        (Ok(ending), false) => written.map(|()| ending),
        (Err(failure), _) => Err(failure),
    }
}

/// Shows what was recorded earlier.
fn show_recording(
    path: &std::path::Path,
    arguments: &WatchArguments,
    signals: &Signals,
) -> Result<Ending, Failure> {
    let input = watch_replay::open(path)?;
    let plot = Plot::create(arguments)?;
    let shows_chart = shows_chart(arguments) && arguments.plot.is_none();
    let mut outlets = Outlets::open(arguments, shows_chart, Some(&input))?;
    let history = watch_replay::replay(input, path, &mut outlets, signals)?;
    watch_replay::drain(&mut outlets, signals)?;
    if shows_chart {
        watch_replay::look_at(&history, &mut Screen::open()?, signals)?;
    }
    let _ = write!(std::io::stderr(), "{}", watch_summary::text(&history));
    plot.map_or(Ok(()), |plot| plot.write(&history))?;
    outlets.finish()?;
    Ok(Ending::Exited(0))
}

/// A picture to be written at the end.
struct Plot {
    file: OutputFile,
    is_png: bool,
}

impl Plot {
    fn create(arguments: &WatchArguments) -> Result<Option<Self>, Failure> {
        let Some(path) = &arguments.plot else { return Ok(None) };
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let is_png = match ending.as_deref().and_then(std::ffi::OsStr::to_str) {
            Some("png") => true,
            Some("svg") => false,
            _ => {
                return Err(Failure::Usage(format!(
                    "--plot draws a file that ends in .svg or .png, not {}",
                    plain(&path.to_string_lossy())
                )));
            }
        };
        let file = OutputFile::create(path)?;
        let others = [&arguments.record, &arguments.output, &arguments.replay];
        if others.into_iter().flatten().any(|other| file.is_at(other)) {
            return Err(output_file::named_twice(path));
        }
        Ok(Some(Self { file, is_png }))
    }

    fn write(self, history: &History) -> Result<(), Failure> {
        let scene = plot::scene(history, &plot::Choice::whole(history));
        match self.is_png {
            true => {
                let bytes = png::png(&scene);
                let bytes = bytes
                    .ok_or_else(|| Failure::Failed("the picture is too large for PNG: use .svg".into()))?;
                self.file.write_bytes(&bytes)
            }
            false => self.file.write(&scene.svg()),
        }
    }
}

/// What is watched, in words.
fn subject(arguments: &WatchArguments) -> Result<String, Failure> {
    let mut parts = Vec::new();
    if !arguments.command.is_empty() {
        let words: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
        parts.push(plain(&words.join(" ")));
    }
    if !arguments.pid.is_empty() {
        let numbers: Vec<String> = arguments.pid.iter().map(ToString::to_string).collect();
        parts.push(format!("process {}", numbers.join(", ")));
    }
    if !arguments.name.is_empty() {
        parts.push(format!("processes named {}", plain(&arguments.name.join(", "))));
    }
    if let Some(pattern) = &arguments.pattern {
        parts.push(format!("processes matching {}", plain(pattern)));
    }
    if !arguments.cgroup.is_empty() {
        let paths: Vec<_> = arguments.cgroup.iter().map(|path| path.to_string_lossy()).collect();
        parts.push(format!("control group {}", plain(&paths.join(", "))));
    }
    if parts.is_empty() {
        return Err(Failure::Usage(
            "nothing to watch: give --pid, --name, --match, --cgroup, or a command after --".into(),
        ));
    }
    let children = if arguments.children { " with children" } else { "" };
    Ok(parts.join(" and ") + children)
}

/// Decides by name or command line.
fn matcher(arguments: &WatchArguments) -> Result<Option<Matcher>, Failure> {
    let names = arguments.name.clone();
    let pattern = arguments.pattern.as_deref().map(Regex::new).transpose().map_err(|error| {
        Failure::Usage(format!(
            "--match wants a regular expression: {}",
            error.to_string().replace('\n', " ")
        ))
    })?;
    if names.is_empty() && pattern.is_none() {
        return Ok(None);
    }
    Ok(Some(Box::new(move |name, command| {
        names.iter().any(|wanted| wanted == name)
            || pattern.as_ref().is_some_and(|pattern| pattern.is_match(&command()))
    })))
}

fn shows_chart(arguments: &WatchArguments) -> bool {
    let wants_lines = arguments.lines || arguments.csv || arguments.json;
    !wants_lines && std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

fn start(
    arguments: &WatchArguments,
    program: std::path::PathBuf,
    spool: Option<&Spool>,
    signals: &Signals,
) -> Result<Launched, Failure> {
    let name = arguments.command[0].to_string_lossy().into_owned();
    let start = Launch {
        program,
        arguments: arguments.command.clone(),
        environment: std::env::vars_os().collect(),
        streams: spool.map_or(Ok([None, None, None]), Spool::streams)?,
        is_detached: false,
    };
    launch(start, signals).map_err(|error| Failure::of_start(&name, &error))
}
