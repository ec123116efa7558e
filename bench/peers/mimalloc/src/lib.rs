//! mimalloc 2 and 3. Only keeps their versions in the lock file: the libraries are built from the crate's sources by their own CMake
//! files.
#![forbid(unsafe_code)]

use libmimalloc_sys2 as _;
