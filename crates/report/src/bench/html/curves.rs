//! Time by threads over a suite: for each contender the geometric mean over its workloads, as ratios to the reference with the fewest
//! threads.

use faultless_diagnosis::standing;
use faultless_records::bench::{Cell, Suite};

use super::board::Board;

/// Fewer thread counts make no curve.
const LEAST_COUNTS: usize = 3;

/// One contender's curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve<'a> {
    /// Its index.
    pub contender: usize,
    /// Its name.
    pub name: &'a str,
    /// Threads, and the mean, by rising number of threads.
    pub points: Vec<(f64, f64)>,
}

/// The curves of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves<'a> {
    /// One for each contender that has two points or more.
    pub curves: Vec<Curve<'a>>,
    /// The numbers of threads that all workloads ran with, rising.
    pub counts: Vec<u32>,
    /// Over how many workloads the means are.
    pub workloads: usize,
}

/// The curves of a suite; none where its workloads did not all run with the same three numbers of threads.
#[must_use]
pub fn curves<'a>(board: &'a Board, suite: Suite) -> Option<Curves<'a>> {
    let all = standing::cells_of(board.campaign, suite).map(|index| (index, &board.campaign.cells[index]));
    let cells: Vec<(usize, &Cell)> = all.filter(|(_, cell)| cell.threads.is_some()).collect();
    let is_same = |one: &Cell, other: &Cell| {
        (&one.workload, one.size, &one.variant) == (&other.workload, other.size, &other.variant)
    };
    let mut workloads: Vec<&Cell> = Vec::new();
    for (_, cell) in &cells {
        if !workloads.iter().any(|known| is_same(known, cell)) {
            workloads.push(cell);
        }
    }
    let mut counts: Vec<u32> = cells.iter().filter_map(|(_, cell)| cell.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    let cell_of = |workload: &Cell, count: u32| {
        let mut own = cells.iter().filter(|(_, cell)| is_same(cell, workload));
        own.find(|(_, cell)| cell.threads == Some(count)).map(|(index, _)| *index)
    };
    counts.retain(|count| workloads.iter().all(|workload| cell_of(workload, *count).is_some()));
    let (true, Some(&fewest)) = (counts.len() >= LEAST_COUNTS, counts.first()) else { return None };

    let time = |workload: &Cell, count, contender: usize| {
        let entry = board.entries(cell_of(workload, count)?).get(contender)?;
        entry.time.spread.map(|spread| spread.median).filter(|median| *median > 0.0)
    };
    let mean = |count: u32, contender: usize| {
        let logarithm = |workload: &&Cell| {
            let reference = time(workload, fewest, board.campaign.reference)?;
            Some((time(workload, count, contender)? / reference).ln())
        };
        let logarithms: Option<Vec<f64>> = workloads.iter().map(logarithm).collect();
        Some((logarithms?.iter().sum::<f64>() / workloads.len() as f64).exp())
    };
    let curve = |contender: usize| {
        let point = |&count: &u32| Some((f64::from(count), mean(count, contender)?));
        Curve { contender, name: board.name(contender), points: counts.iter().filter_map(point).collect() }
    };
    let curves = (0..board.campaign.contenders.len()).map(curve).filter(|curve| curve.points.len() > 1);
    let curves: Vec<Curve> = curves.collect();
    (!curves.is_empty()).then_some(Curves { curves, counts, workloads: workloads.len() })
}
