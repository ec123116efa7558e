//! What `map` says: tables, changes, sums of saved files, JSON.

pub mod change;
pub(crate) mod foot;
pub mod json;
mod nmt;
pub mod saved_totals;
pub mod table;
pub mod view;
