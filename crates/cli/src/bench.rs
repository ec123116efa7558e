//! `faultless bench`: runs the workloads under several allocators in turn and says how they compare.

mod contenders;
mod plan;
mod progress;
mod user_command;
mod workshop;

use std::io::Write;
use std::path::Path;

use faultless_probe::allocators::installed;
use faultless_probe::clock::unix_s;
use faultless_probe::java;
use faultless_probe::signals::Signals;
use faultless_probe::{loader, machine, terminal};
use faultless_records::bench::{Campaign, Contender, SCHEMA, Suite};
use faultless_records::measurement::Ending;
use faultless_report::bench;
use faultless_report::plain::{fitted, trimmed};
use faultless_report::saved_form;
use faultless_trial::benchmark::catalogue::{self, WORKLOADS};
use faultless_trial::benchmark::programs::PROGRAMS;
use faultless_trial::benchmark::seeds;
use faultless_trial::command::{self, RunError};
use faultless_trial::environment::Environment;

use crate::arguments::BenchArguments;
use crate::failure::Failure;
use crate::output_file::{OutputFile, create_apart};
use crate::picture::Form;
use crate::saved_file;
use crate::say;
use plan::{Plan, is_installed};
use workshop::shell;

/// A seed from the clock is small enough to be typed again.
const SEED_MASK: u32 = 0xf_ffff;

/// Runs a campaign, or shows a saved one.
///
/// # Errors
/// [`Failure`] when nothing could be compared.
pub fn bench(
    arguments: &BenchArguments,
    hold_signals: impl FnOnce() -> Result<Signals, Failure>,
) -> Result<Ending, Failure> {
    if arguments.list {
        crate::print_report(&fitted(list(), terminal::columns()))?;
        return Ok(Ending::Exited(0));
    }
    // Before signals are held: a pipe that nobody writes into must not outlast them.
    let loaded =
        arguments.load.as_deref().map(|path| load(path, arguments.reference.as_deref())).transpose()?;
    let signals = hold_signals()?;
    // Files that cannot be written are refused before hours of work.
    let prints_samples = arguments.json.as_deref() == Some(Path::new("-"));
    let json = arguments.json.as_deref().filter(|_| !prints_samples);
    let form = arguments.plot.as_deref().map(Form::of).transpose()?;
    let paths = [json, arguments.html.as_deref(), arguments.plot.as_deref()];
    let [samples, page, picture] = create_apart(paths, arguments.load.as_deref())?;
    let (campaign, interrupted) = match loaded {
        Some(campaign) => (campaign, None),
        None => run(arguments, &signals)?,
    };
    let saved = samples.map_or(Ok(()), |file| file.write(&bench::json::json(&campaign)));
    let drawn = page.map_or(Ok(()), |file| file.write(&bench::html::html(&campaign)));
    let plotted = form.zip(picture).map_or(Ok(()), |(form, file)| plot(&campaign, form, file));
    // A disk that is full by now costs its file and not the result.
    let table = trimmed(&bench::table::text(&campaign, terminal::columns()));
    signals.let_through();
    let printed = match prints_samples {
        true => {
            let _ = write!(std::io::stderr(), "{table}");
            crate::print(bench::json::json(&campaign))
        }
        false => crate::print(table),
    };
    let written = Failure::joined([saved, drawn, plotted]).and(printed);
    if let Some(error) = interrupted {
        // Whoever waits for us learns of the signal by how we end, of a file that is missing by a line.
        if let Err(Failure::Failed(reason)) = written {
            say(&reason);
        }
        return Err(Failure::of_run("the benchmark", error));
    }
    written?;
    let has_failures = campaign.samples.iter().any(|sample| sample.failure.is_some());
    Ok(Ending::Exited(i32::from(has_failures)))
}

/// Draws time against memory.
fn plot(campaign: &Campaign, form: Form, file: OutputFile) -> Result<(), Failure> {
    let scene = bench::html::plot::scene(campaign).ok_or_else(|| {
        Failure::Failed("nothing to draw: no allocator has figures for all of a suite".into())
    })?;
    form.write(file, &scene)
}

/// Runs; an interruption leaves the rounds that are complete, or of the first round the cells that are.
fn run(arguments: &BenchArguments, signals: &Signals) -> Result<(Campaign, Option<RunError>), Failure> {
    let started_unix_s = unix_s();
    let seed = arguments.seed.unwrap_or((started_unix_s & u64::from(SEED_MASK)) as u32);
    let command = user_command::find(&arguments.command)?;
    let mut plan = Plan::new(arguments, command.as_ref(), seed, signals)?;
    let is_drawn = plan.cells.iter().any(|cell| cell.suite.takes_a_seed());
    let libc = libc(signals)?;
    let (samples, mut interrupted) = plan.run(signals)?;
    let mut system_calls = Vec::new();
    if arguments.system_calls && interrupted.is_none() {
        (system_calls, interrupted) = plan.count_calls(signals);
    }
    let campaign = Campaign {
        schema: SCHEMA,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_s,
        machine: machine::machine(libc),
        contenders: plan.contenders,
        reference: plan.reference,
        command: command.map_or_else(Vec::new, |command| command.words()),
        seed: is_drawn.then_some(seed),
        cells: plan.cells,
        samples,
        system_calls,
    };
    Ok((campaign, interrupted))
}

/// The C library of this machine's programs; ours may be another when the tool is linked statically.
fn libc(signals: &Signals) -> Result<String, Failure> {
    let look = match command::run(&shell(":"), &Environment::new(std::env::vars_os()), signals) {
        // A container without a shell.
        Err(RunError::Start(_)) => return Ok(String::new()),
        look => look.map_err(|error| Failure::of_run("/bin/sh", error))?,
    };
    let version = loader::glibc_version(&look.measurement.mapped_files);
    Ok(version.map_or(String::new(), |(major, minor)| format!("glibc {major}.{minor}")))
}

fn index_of(contenders: &[Contender], name: &str) -> Result<usize, Failure> {
    contenders
        .iter()
        .position(|contender| contender.name == name)
        .ok_or_else(|| Failure::Usage(format!("the reference {name} is not among the allocators")))
}

/// A saved campaign; `-` is standard input.
fn load(path: &Path, reference: Option<&str>) -> Result<Campaign, Failure> {
    let bytes = saved_file::read(path)?;
    let parsed = bench::json::parse(&String::from_utf8_lossy(&bytes));
    let another = saved_file::of_another(path, &bytes).filter(|_| !saved_form::is_campaign(&bytes));
    let refused = |reason: String| match another {
        Some(text) => Failure::Failed(text),
        None => saved_file::unreadable(path, reason),
    };
    let mut campaign = parsed.map_err(refused)?;
    if let Some(name) = reference {
        campaign.reference = index_of(&campaign.contenders, name)?;
    }
    Ok(campaign)
}

/// What can be asked for on this machine.
fn list() -> String {
    let mut text = String::from("Workloads\n");
    for suite in Suite::ALL.into_iter().filter(|suite| suite.has_programs()) {
        let mut names: Vec<String> =
            WORKLOADS.iter().filter(|(of, _)| *of == suite).map(|(_, name)| (*name).to_owned()).collect();
        if suite == Suite::Programs {
            names.extend(PROGRAMS.iter().map(|program| {
                let missing: Vec<&str> =
                    program.needs.iter().copied().filter(|needed| !is_installed(needed)).collect();
                match missing.as_slice() {
                    [] => program.name.to_owned(),
                    missing => format!("{} (needs {})", program.name, missing.join(", ")),
                }
            }));
        }
        if suite == Suite::Drawn {
            names.push(format!("{} programs, others each time (--seed)", catalogue::DRAWN));
        }
        if suite == Suite::Seeds {
            names.extend(seeds::names().map(|name| match name {
                seeds::JVM if java::installed().is_empty() => format!("{name} (needs a JDK)"),
                _ => name.to_owned(),
            }));
        }
        text.push_str(&format!("  {:<9}{}\n", suite.name(), names.join(", ")));
    }
    text.push_str("  -- CMD   a command of your own\n");
    text.push_str("Allocators\n  libc\n  faultless\n");
    for found in installed() {
        text.push_str(&format!("  {:<16} {}\n", contenders::key(&found), found.library.display()));
    }
    text.push_str("  NAME=PATH        any other\n");
    text
}
