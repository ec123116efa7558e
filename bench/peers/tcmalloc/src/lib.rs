//! google tcmalloc. `unprefixed.h` has the archive export malloc and the C++ operators by itself; nothing of ours stands in front.
#![forbid(unsafe_code)]

use libtcmalloc_sys as _;
