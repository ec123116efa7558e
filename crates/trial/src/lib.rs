//! Runs one command in several arms, interleaved, and brings back what was measured of each run.
#![forbid(unsafe_code)]

pub mod benchmark;
pub mod call_stacks;
mod callers;
pub mod command;
pub mod comparison;
pub mod environment;
pub mod faults;
mod output;
pub mod turns;
