//! Bytes of `/proc`, of executables and of the library's report turned into plain structs, and the plain structs
//! that the tool's other crates exchange. No I/O: every function takes bytes or text and returns data.
#![forbid(unsafe_code)]

pub mod allocator;
pub mod bench;
pub mod call_tracepoint;
pub mod call_tree;
pub mod cgroup;
pub mod churn_recording;
pub mod contents;
pub mod core_file;
pub mod counters;
pub mod demo;
pub mod elf;
pub mod fault_accounts;
pub mod fault_recording;
pub mod faultless_page;
pub mod glibc;
pub mod glibc_heap;
pub mod heap_report;
pub mod malloc_event;
pub mod malloc_recording;
pub mod mappings;
pub mod measurement;
pub mod memory_call;
pub mod nmt;
pub mod pagemap;
pub mod perf_map;
pub mod perf_record;
pub mod permission;
pub mod pmap;
pub mod preload_list;
pub mod process_event;
pub mod processor_samples;
pub mod program;
pub mod quantity;
pub mod recording;
pub mod saved_campaign;
pub mod saved_form;
pub mod script;
pub mod signal;
pub mod status;
pub mod thread;
pub mod tunables;
pub mod unmapped_files;
pub mod workload_report;
