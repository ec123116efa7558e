//! The order of runs: what changes on the machine meanwhile meets all contenders.

/// Where a comparison stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Round, from 0.
    pub round: u32,
    /// Index of the cell.
    pub cell: usize,
    /// Index of the contender.
    pub contender: usize,
}

/// All runs, cell by cell in each round. Who begins changes from cell to cell and from round to round, so that none is always
/// the one that runs on a machine just loaded or just idle.
pub fn turns(rounds: u32, cells: usize, contenders: usize) -> impl Iterator<Item = Turn> {
    (0..rounds).flat_map(move |round| {
        (0..cells).flat_map(move |cell| {
            (0..contenders).map(move |place| {
                let contender = (place + cell + round as usize) % contenders.max(1);
                Turn { round, cell, contender }
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_take_turns_at_beginning() {
        let turns: Vec<Turn> = super::turns(2, 2, 3).collect();
        assert_eq!(turns.len(), 12);
        let first: Vec<usize> = turns.iter().step_by(3).map(|turn| turn.contender).collect();
        assert_eq!(first, [0, 1, 1, 2]);
        assert_eq!(super::turns(3, 0, 0).count(), 0);
    }

    #[test]
    fn every_contender_runs_once_in_each_round_of_a_cell() {
        let turns: Vec<Turn> = super::turns(3, 1, 3).collect();
        for of_round in turns.chunks(3) {
            let mut contenders: Vec<usize> = of_round.iter().map(|turn| turn.contender).collect();
            assert_eq!(contenders[0], of_round[0].round as usize);
            contenders.sort_unstable();
            assert_eq!(contenders, [0, 1, 2]);
        }
    }
}
