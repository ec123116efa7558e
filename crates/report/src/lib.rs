//! Tables for people and versioned JSON for programs.
#![forbid(unsafe_code)]

pub mod bench_html;
pub mod doctor;
pub mod doctor_json;
pub mod paste;
pub mod plain;
pub mod quantity;
pub mod summary;
pub mod table;
