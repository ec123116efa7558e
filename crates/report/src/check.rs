//! What `check` says, as a table and as JSON.

pub mod json;
pub mod table;
