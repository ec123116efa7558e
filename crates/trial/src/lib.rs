//! Runs commands: one in several arms, a campaign of allocators and workloads, one whose page faults are recorded; and brings
//! back what was measured.
#![forbid(unsafe_code)]

pub mod benchmark;
pub mod call_stacks;
mod callers;
pub mod command;
pub mod comparison;
pub mod environment;
pub mod faults;
mod output;
pub mod processor_time;
pub mod turns;
