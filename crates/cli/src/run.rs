//! `faultless run`: a command under the allocator, with a summary of what it used.

use std::ffi::OsStr;
use std::path::PathBuf;

use faultless_diagnosis::preload::Purpose;
use faultless_probe::launch::{Launch, launch};
use faultless_probe::machine::killed_for_memory;
use faultless_probe::place::{self, PrivateDirectory};
use faultless_probe::signals::Signals;
use faultless_probe::watch::watch;
use faultless_records::allocator::Allocator;
use faultless_records::measurement::Ending;
use faultless_report::summary;
use faultless_trial::environment::Environment;

use crate::arguments::RunArguments;
use crate::failure::Failure;
use crate::library;
use crate::output_file::OutputFile;
use crate::plan;
use crate::target;

/// Runs the command and returns how it ended.
///
/// # Errors
/// [`Failure`] when it could not be run.
pub fn run(arguments: RunArguments, signals: &Signals) -> Result<Ending, Failure> {
    let command = target::resolve(arguments.command, Purpose::Allocator)?;
    let name = command.name();
    let program = command.program.clone();
    // A place that cannot be written is found out before the command has run, not after.
    let json = arguments.json.as_deref().map(OutputFile::create).transpose()?;
    let library = LibraryFile::put()?;

    let own = Environment::new(std::env::vars_os());
    let mut environment = plan::under_faultless(&own, &library.path, &place::system_preload());
    if arguments.stats {
        environment = environment.with_option("FAULTLESS", OsStr::new("stats:exit"));
    }
    let environment = environment.variables().to_vec();
    let start = Launch { environment, ..target::start(command, false)? };
    let killed_before = killed_for_memory();
    let launched = launch(start, signals).map_err(|error| Failure::of_start(&name, &error))?;
    let measurement = watch(&launched, signals, None).map_err(|error| Failure::of_watch(&name, error))?;

    // What is called may become another program, as rustup's rustc does.
    let own_malloc = target::own_malloc(&program, [measurement.program()]);

    let saved = json.map(|file| file.write(&summary::json(&measurement, own_malloc.is_some())));
    // A disk that is full by now costs its file and not the figures.
    if !matches!(saved, Some(Ok(()))) {
        crate::say(&summary::line(&measurement));
    }
    if let Some(said) = target::of_starved(&name, "peak and final RSS", measurement.ending, killed_before) {
        crate::say(&said);
    }
    // Short programs may end before a sample was taken; only what was seen is judged.
    if measurement.allocator().is_some_and(|allocator| allocator != Allocator::Faultless) {
        crate::say(&format!("{name} did not load the allocator, or started a program that did not"));
    }
    if let Some(own_malloc) = own_malloc {
        crate::say(&own_malloc);
    }
    saved.unwrap_or(Ok(())).map(|()| measurement.ending)
}

/// The library as a file that the command can load.
///
/// It stays in the cache, because processes that the command leaves behind may start others after we have gone; only
/// where there is no cache it is a temporary file.
struct LibraryFile {
    path: PathBuf,
    _temporary: Option<PrivateDirectory>,
}

impl LibraryFile {
    fn put() -> Result<Self, Failure> {
        let cached =
            place::cache_directory().and_then(|directory| faultless_bundle::library_into(&directory));
        if let Ok(path) = cached {
            return Ok(Self { path, _temporary: None });
        }
        let (directory, path) = library::private()?;
        Ok(Self { path, _temporary: Some(directory) })
    }
}
