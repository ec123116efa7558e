//! jemalloc. The archive exports malloc by itself; the C++ operators, which the crate leaves out, are libstdc++'s and call it.
#![forbid(unsafe_code)]

use tikv_jemalloc_sys as _;
