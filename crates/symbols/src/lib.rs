//! From addresses in running programs to functions, source lines and inlined frames; and from saved registers and a piece of
//! stack to the call chain, without frame pointers.
//!
//! Files come in opened: whoever observes a process knows in which file system, and under which number, they are to be found.
//! Nothing is asked of a network.
#![forbid(unsafe_code)]

pub mod address_space;
mod bare_name;
#[cfg(test)]
mod damaged;
mod debug_info;
pub mod exported;
pub mod module;
pub mod modules;
mod scopes;
mod section;
pub mod separate_debug;
mod symbol_table;
pub mod unwinding;
