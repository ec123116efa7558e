//! rpmalloc. The archive exports malloc and the C++ operators by itself; nothing of ours stands in front.
#![forbid(unsafe_code)]

use rpmalloc_sys as _;
