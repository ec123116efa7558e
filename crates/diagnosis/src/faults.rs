//! What a recording of page faults says: who took them, on what kind of memory, and how the figures agree with the kernel's.

pub mod balance;
pub mod blame;
pub mod comparison;
pub mod function_name;
pub mod place;
pub mod profile;
pub mod weight;
