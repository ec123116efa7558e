//! snmalloc. Only keeps its version in the lock file: the library is built from the crate's sources by their own CMake file.
#![forbid(unsafe_code)]

use snmalloc_sys as _;
