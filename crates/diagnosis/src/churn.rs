//! What a process does with its mappings: from single calls to sums, from sums to what is wrong.

mod address_space;
pub mod blame;
mod patterns;
pub mod tally;
pub mod thrash;
