//! Tables for people and versioned JSON for programs.
#![forbid(unsafe_code)]

pub mod bench_html;
pub mod bench_json;
pub mod bench_table;
pub mod churn_json;
pub mod churn_malloc_json;
pub mod churn_malloc_table;
pub mod churn_table;
pub mod doctor;
pub mod doctor_json;
pub mod faults_diff;
pub mod faults_json;
pub mod faults_table;
pub mod faults_tree;
pub mod flame;
pub mod heap;
pub mod heap_json;
pub mod heap_table;
pub mod map_change;
pub mod map_json;
pub mod map_saved_totals;
pub mod map_table;
pub mod map_view;
pub mod paste;
pub mod plain;
pub mod pprof;
pub mod quantity;
pub mod seeds_table;
pub mod summary;
pub mod table;
