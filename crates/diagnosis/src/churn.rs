//! What a process does with its mappings: from single calls to sums, from sums to what is wrong.

mod address_space;
pub mod blame;
pub mod circumstances;
pub mod comparison;
pub mod holders;
pub mod makers;
pub mod malloc_blame;
pub mod malloc_tally;
mod patterns;
pub mod runtimes;
pub mod tally;
pub mod thrash;
