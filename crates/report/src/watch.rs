//! What `watch` shows: lines, sums, JSON.

pub mod json;
pub mod lines;
pub mod summary;
pub mod view;
