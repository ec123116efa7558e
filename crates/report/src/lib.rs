//! Tables, pages and pictures for people; versioned JSON, profiles for pprof and Prometheus's text for programs.
#![forbid(unsafe_code)]

pub mod axis;
pub mod bench;
pub mod check;
pub mod churn;
pub mod doctor;
pub mod faults;
pub mod flame;
mod folded;
pub mod heap;
mod html_page;
pub mod malloc_info;
pub mod map;
pub mod orphans;
pub mod paste;
pub mod plain;
pub mod plot;
pub mod png;
mod pprof;
pub mod prometheus_text;
pub mod saved_form;
pub mod scene;
pub mod summary;
mod table;
mod table_form;
pub mod watch;
