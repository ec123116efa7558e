//! What a campaign runs, and how far it comes.

use faultless_probe::java::{self, Java};
use faultless_probe::place::PrivateDirectory;
use faultless_probe::program;
use faultless_probe::signals::Signals;
use faultless_records::bench::{Cell, Contender, Sample, SystemCalls};
use faultless_trial::benchmark::campaign::{Entry, Job, count_calls, run_all};
use faultless_trial::benchmark::catalogue::{self, Wish};
use faultless_trial::benchmark::programs;
use faultless_trial::benchmark::seeds;
use faultless_trial::command::{Command, RunError};
use faultless_trial::environment::Environment;
use faultless_trial::turns::Turn;

use super::progress::BenchProgress;
use super::workshop::Workshop;
use super::{contenders, index_of, user_command};
use crate::arguments::BenchArguments;
use crate::failure::Failure;
use crate::{library, placement};

const ROUNDS: u32 = 10;
const ROUNDS_QUICK: u32 = 3;
const IDLE_MS: u32 = 1000;

/// All runs of a campaign.
pub struct Plan {
    /// What is measured. An interruption in the first round leaves the cells that are complete.
    pub cells: Vec<Cell>,
    /// Under what.
    pub contenders: Vec<Contender>,
    /// The contender with which the others are compared.
    pub reference: usize,
    /// What each cell runs.
    jobs: Vec<Job>,
    /// How each contender is preloaded.
    entries: Vec<Entry>,
    rounds: u32,
    /// Where the programs and the library lie.
    _directory: PrivateDirectory,
}

impl Plan {
    /// Finds the cells and the contenders that are asked for, and makes what they run.
    ///
    /// # Errors
    /// [`Failure`] when something asked for is unknown, not installed or cannot be made.
    pub fn new(
        arguments: &BenchArguments,
        command: Option<&Command>,
        seed: u32,
        signals: &Signals,
    ) -> Result<Self, Failure> {
        let javas = java::installed();
        let cells = match command {
            Some(command) => vec![user_command::cell(command)],
            None => cells(arguments, seed, &javas)?,
        };
        let (directory, library) = library::private()?;
        let own = Environment::new(std::env::vars_os());
        let (mut contenders, entries): (Vec<_>, Vec<_>) =
            contenders::contenders(&arguments.allocators, &own, &library)?.into_iter().unzip();
        let reference = match &arguments.reference {
            None => 0,
            Some(name) => index_of(&contenders, name)?,
        };
        let idle_ms = arguments.idle.unwrap_or(if arguments.quick { 0 } else { IDLE_MS });
        let workshop = Workshop { directory: directory.path(), idle_ms, javas: &javas, signals };
        let jobs = match command {
            Some(command) => vec![user_command::look(command, &own, &mut contenders, signals)?],
            None => cells.iter().map(|cell| workshop.job(cell)).collect::<Result<_, _>>()?,
        };
        let rounds = arguments.repeat.unwrap_or(if arguments.quick { ROUNDS_QUICK } else { ROUNDS });
        Ok(Self { cells, contenders, reference, jobs, entries, rounds, _directory: directory })
    }

    /// Makes all runs. An interruption, which is returned, leaves what [`Self::keep_complete`] keeps.
    ///
    /// # Errors
    /// [`Failure`] when an interruption leaves nothing.
    pub fn run(&mut self, signals: &Signals) -> Result<(Vec<Sample>, Option<RunError>), Failure> {
        let rounds = self.rounds;
        let mut progress = BenchProgress::start(rounds, self.cells.len(), self.entries.len());
        let mut observe = |turn: Turn, sample: Option<&Sample>| match sample {
            None => progress.begins(&format!("round {} of {rounds}: {}", turn.round + 1, self.name(turn))),
            Some(_) => progress.ended(),
        };
        let (mut samples, interrupted) = run_all(&self.jobs, &self.entries, rounds, signals, &mut observe);
        drop(progress);
        let Some(error) = interrupted else { return Ok((samples, None)) };
        let Some(kept) = self.keep_complete(&mut samples) else {
            return Err(Failure::of_run("the benchmark", error));
        };
        crate::say(&format!("interrupted: {kept} complete and counted"));
        Ok((samples, Some(error)))
    }

    /// Counts system calls, and says which could not be counted; an interruption leaves what was counted.
    pub fn count_calls(&self, signals: &Signals) -> (Vec<SystemCalls>, Option<RunError>) {
        let mut progress = BenchProgress::start(1, self.jobs.len(), self.entries.len());
        let mut uncounted = Vec::new();
        let counted = count_calls(&self.jobs, &self.entries, signals, &mut |turn, result| match result {
            None => progress.begins(&format!("counting calls: {}", self.name(turn))),
            Some(result) => {
                progress.ended();
                let reason = result.as_ref().err();
                let name = self.name(turn);
                uncounted.extend(reason.map(|why| format!("calls of {name} were not counted: {why}")));
            }
        });
        drop(progress);
        uncounted.iter().for_each(|line| crate::say(line));
        if counted.1.is_some() {
            let all = self.jobs.len() * self.entries.len();
            crate::say(&format!("interrupted: {} of {all} counts of system calls are kept", counted.0.len()));
        }
        counted
    }

    /// Keeps the rounds that are complete, or of the first round the cells that are; which, in words. None where not even a cell is.
    fn keep_complete(&mut self, samples: &mut Vec<Sample>) -> Option<String> {
        let (all, contenders) = (self.cells.len(), self.contenders.len());
        let whole_rounds = samples.len() / (all * contenders);
        let whole_cells = samples.len() / contenders;
        if whole_rounds == 0 {
            self.cells.truncate(whole_cells);
        }
        samples.truncate(whole_rounds.max(1) * self.cells.len() * contenders);
        match (whole_rounds, whole_cells) {
            (_, 0) => None,
            (0, cells) => Some(format!("{cells} of {all} cells of the first round")),
            (whole, _) => Some(format!("{whole} of {} rounds", self.rounds)),
        }
    }

    fn name(&self, turn: Turn) -> String {
        format!("{} under {}", self.cells[turn.cell].workload, self.contenders[turn.contender].name)
    }
}

/// The cells of the suites and workloads that are asked for.
fn cells(arguments: &BenchArguments, seed: u32, javas: &[Java]) -> Result<Vec<Cell>, Failure> {
    let wish = Wish {
        names: arguments.names.clone(),
        threads: arguments.threads.clone(),
        sizes: arguments.sizes.clone(),
        is_quick: arguments.quick,
        seed,
        javas: javas.iter().map(|java| java.version).collect(),
    };
    let with_dashes = || placement::with_dashes(&std::env::args_os().collect::<Vec<_>>());
    let cells = catalogue::cells(&wish, is_installed).map_err(|error| {
        Failure::Usage(with_dashes().map_or(error.clone(), |line| format!("{error}: {line}")))
    })?;
    refuse_missing(&arguments.names)?;
    match cells.is_empty() {
        true => Err(Failure::Failed("none of these programs is installed".into())),
        false => Ok(cells),
    }
}

/// A program that was asked for by its name is not left out in silence, as one of its suite is.
fn refuse_missing(names: &[String]) -> Result<(), Failure> {
    for program in names.iter().filter_map(|name| programs::program(name)) {
        if let Some(needed) = program.needs.iter().find(|needed| !is_installed(needed)) {
            return Err(Failure::Failed(format!(
                "{} cannot run here: {needed} is not installed",
                program.name
            )));
        }
    }
    if names.iter().any(|name| name == seeds::JVM) && java::installed().is_empty() {
        return Err(Failure::Failed("jvm cannot run here: no JDK is installed".into()));
    }
    Ok(())
}

/// Whether a command is in `PATH`.
pub fn is_installed(name: &str) -> bool {
    program::find(name.as_ref()).is_ok()
}
