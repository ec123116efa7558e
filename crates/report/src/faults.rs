//! What `faults` says: answers, tables, trees, comparisons, JSON and pprof.

pub(crate) mod answer;
pub mod diff;
pub mod json;
pub mod pprof;
pub mod table;
pub mod tree;
