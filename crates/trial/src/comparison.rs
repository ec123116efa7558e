//! Several arms in turn, round after round, so that what changes on the machine meanwhile meets all of them.

use faultless_probe::signals::Signals;

use crate::command::{Command, Run, RunError, run};
use crate::environment::Environment;
use crate::turns::{Turn, turns};

/// One way of running the command.
#[derive(Debug, Clone)]
pub struct Arm {
    /// Name in the table.
    pub name: String,
    /// The whole environment it runs in.
    pub environment: Environment,
}

/// Hears of each run as it begins and ends.
pub trait Observer {
    /// A run begins.
    fn begins(&mut self, turn: Turn);
    /// A run has ended.
    fn ended(&mut self, turn: Turn, run: &Run);
}

/// Runs every arm once a round; the result has the runs of each arm in the order of the rounds.
///
/// # Errors
/// The first [`RunError`]; a command that fails is a result, not an error.
pub fn compare(
    command: &Command,
    arms: &[Arm],
    rounds: u32,
    signals: &Signals,
    observer: &mut dyn Observer,
) -> Result<Vec<Vec<Run>>, RunError> {
    let mut results: Vec<Vec<Run>> = arms.iter().map(|_| Vec::new()).collect();
    for turn in turns(rounds, 1, arms.len()) {
        observer.begins(turn);
        let result = run(command, &arms[turn.contender].environment, signals)?;
        observer.ended(turn, &result);
        results[turn.contender].push(result);
    }
    Ok(results)
}
