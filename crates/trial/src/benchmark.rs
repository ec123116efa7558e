//! Benchmark campaigns: what is run, and running it under several allocators in turn.

pub mod campaign;
pub mod catalogue;
pub mod programs;
pub mod seeds;
