//! mimalloc 2. The archive exports malloc and the C++ operators by itself; nothing of ours stands in front.
#![forbid(unsafe_code)]

use libmimalloc_sys as _;
