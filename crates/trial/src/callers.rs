//! Who did it: the processes under observation, their code and their stacks, brought together into one tree of calls.

mod images;
mod naming;
mod raw_tree;

pub use images::Images;
pub use raw_tree::RawTree;
