//! Performance events of the kernel: counted, or sampled with the address, registers and stack of the moment.
//!
//! A [`Session`] opens its events on every CPU for every thread, since inherited events can only share a buffer per CPU, and
//! hands out the decoded records in the order of their times. It works without privileges where the kernel allows that.

mod access;
mod attribute;
mod cpus;
mod events;
mod moment;
mod refusal;
mod ring;
mod session;

pub use access::{Access, access, access_to};
pub use cpus::cpus;
pub use events::{Event, Plan, Sampling, Scope, What};
pub use moment::Moment;
pub use refusal::PerfError;
pub use session::Session;
