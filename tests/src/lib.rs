//! What the tests of the whole are made of.
//!
//! Most tests are small C and C++ programs in `c/`: one idea each, silent with exit status 0 when all is right, one line on
//! stderr and exit status 1 when not. What cannot be tested on a machine is a line on stdout, `skipped: REASON`. [`program`]
//! compiles and runs them under the library that [`library`] finds; the files in `tests/` say which program runs how.
//! [`rules`] reads the [`workspace`]'s sources for `tests/tidy.rs`.
//!
//! The programs themselves are validated against libc: `FAULTLESS_TESTS_LIBRARY=none cargo test -p faultless-tests` runs them
//! without a preload (what only Faultless promises is then left out), and a path in that variable tests that library instead.
#![forbid(unsafe_code)]

pub mod library;
pub mod program;
pub mod rules;
pub mod source;
pub mod workspace;
