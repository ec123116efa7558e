//! What `churn` says, as tables and as JSON.

pub mod diff;
mod holders;
pub mod json;
pub mod malloc_json;
pub mod malloc_table;
pub mod profile;
pub mod table;
