//! Starts and observes processes: files of `/proc`, ptrace, resource use, signals, places to write to.
//!
//! The only crate of the tool with `unsafe` code; what it hands out is safe.

pub mod allocators;
pub mod clock;
pub mod contents;
pub mod core_image;
mod deadline;
pub mod file_limit;
pub mod huge_page;
mod identity;
pub mod java;
pub mod jcmd;
pub mod launch;
pub mod loader;
pub mod machine;
pub mod malloc_recorder;
pub mod mapped_file;
pub mod memory_call_filter;
pub mod memory_call_trace;
pub mod memory_group;
pub mod named_pipe;
pub mod page_scan;
pub mod pagemap;
pub mod perf;
pub mod permissions;
pub mod place;
pub mod proc_view;
pub mod process;
pub mod process_events;
pub mod process_files;
pub mod process_list;
pub mod program;
pub mod sampler;
pub mod signals;
pub mod standstill;
pub mod system_call_trap;
pub mod system_calls;
pub mod terminal;
pub mod thread_states;
pub mod tracefs;
pub mod tracer;
pub mod trap_cost;
pub mod uprobe;
pub mod wakeup;
pub mod watch;
pub mod watched;
pub mod watched_group;
