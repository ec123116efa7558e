//! What `bench` says: tables, JSON, a page.

mod command_table;
pub mod html;
pub mod json;
mod seeds_table;
pub mod table;
