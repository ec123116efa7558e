//! What follows from what was observed: settings and verdicts, what each mapping is, what glibc's heaps hold, who takes page
//! faults and who gives memory back in vain. Pure: data in, data out; no I/O, no clocks.
#![forbid(unsafe_code)]

pub mod churn;
pub mod classification;
pub mod doubt;
pub mod effect;
pub mod environment;
pub mod faults;
pub mod fleet;
pub mod glibc_heap;
pub mod history;
pub mod java_account;
pub mod loaded_data;
pub mod malloc_time;
pub mod metric;
mod options;
pub mod permission;
pub mod preload;
pub mod programs;
mod seed_case;
pub mod seeds;
pub mod setting;
pub mod spread;
pub mod standing;
pub mod tuning;
pub mod verdict;
pub mod whole_numbers;
