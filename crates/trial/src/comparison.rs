//! Several arms in turn, round after round, so that what changes on the machine meanwhile meets all of them.

use faultless_probe::signals::Signals;

use crate::command::{Command, Run, RunError, run};
use crate::environment::Environment;

/// One way of running the command.
#[derive(Debug, Clone)]
pub struct Arm {
    /// Name in the table.
    pub name: String,
    /// The whole environment it runs in.
    pub environment: Environment,
}

/// Where a comparison stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Round, from 0.
    pub round: usize,
    /// Index of the arm.
    pub arm: usize,
}

/// Hears of each run as it begins and ends.
pub trait Observer {
    /// A run begins.
    fn begins(&mut self, turn: Turn);
    /// A run has ended.
    fn ended(&mut self, turn: Turn, run: &Run);
}

/// The order of all runs: each round begins one arm later than the one before, so that no arm is always the one that
/// runs on a machine just loaded or just idle.
#[must_use]
pub fn schedule(arms: usize, rounds: usize) -> Vec<Turn> {
    (0..rounds)
        .flat_map(|round| (0..arms).map(move |place| Turn { round, arm: (place + round) % arms.max(1) }))
        .collect()
}

/// Runs every arm once a round; the result has the runs of each arm in the order of the rounds.
///
/// # Errors
/// The first [`RunError`]; a command that fails is a result, not an error.
pub fn compare(
    command: &Command,
    arms: &[Arm],
    rounds: usize,
    signals: &Signals,
    observer: &mut dyn Observer,
) -> Result<Vec<Vec<Run>>, RunError> {
    let mut results: Vec<Vec<Run>> = arms.iter().map(|_| Vec::new()).collect();
    for turn in schedule(arms.len(), rounds) {
        observer.begins(turn);
        let result = run(command, &arms[turn.arm].environment, signals)?;
        observer.ended(turn, &result);
        results[turn.arm].push(result);
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_runs_once_a_round_and_no_arm_always_begins() {
        let turns = schedule(3, 3);
        assert_eq!(turns.len(), 9);
        for round in 0..3 {
            let mut arms: Vec<usize> =
                turns.iter().filter(|turn| turn.round == round).map(|turn| turn.arm).collect();
            assert_eq!(arms[0], round);
            arms.sort_unstable();
            assert_eq!(arms, [0, 1, 2]);
        }
        assert!(schedule(0, 3).is_empty());
    }
}
