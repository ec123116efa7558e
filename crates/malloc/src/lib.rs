//! Placeholder.
#![no_std]
use faultless_heap as _;
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }
