//! The buffer that the kernel writes the records of one CPU into.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;
use perf_event_open_sys::bindings::perf_event_mmap_page;

use crate::process_files::page_bytes;

/// The smallest buffer that holds a record of any size (they are shorter than 64 KiB).
pub(super) const SMALLEST_BYTES: usize = 64 * 1024;

/// A mapped buffer: one page of control, then `data_bytes`, a power of two.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is reached through it only; the kernel writes from any CPU anyway.
unsafe impl Send for Ring {}

/// Header of a record: its type, the misc field, and its whole length.
const HEADER_BYTES: usize = 8;

impl Ring {
    /// Maps the buffer of an event.
    ///
    /// # Errors
    /// The kernel's; EPERM when the limit on locked memory is reached.
    pub(super) fn map(event: impl AsFd, data_bytes: usize) -> io::Result<Self> {
        debug_assert!(data_bytes.is_power_of_two());
        let page_bytes = page_bytes() as usize;
        // SAFETY: a new mapping at a place of the kernel's choice; nothing of ours lies there.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page_bytes + data_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_fd().as_raw_fd(),
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(place) if base != libc::MAP_FAILED => Ok(Self { base: place, page_bytes, data_bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The kernel's place to write, in bytes since the start; grows for ever.
    pub(super) fn head(&self) -> u64 {
        // SAFETY: the control page is mapped as long as `self` lives, and the kernel keeps the field aligned.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).data_head) };
        // ORDERING: Acquire makes the records before `head` visible; pairs with the kernel's store after writing them.
        head.load(Ordering::Acquire)
    }

    /// Hands every whole record before `head` to `take` (type, misc, body) and gives their room back.
    pub(super) fn drain(&self, head: u64, scratch: &mut Vec<u8>, mut take: impl FnMut(u32, u16, &[u8])) {
        // SAFETY: as in `head`; only we write this field.
        let tail = unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).data_tail) };
        // ORDERING: Relaxed; our own last store.
        let mut place = tail.load(Ordering::Relaxed);
        while head.wrapping_sub(place) >= HEADER_BYTES as u64 {
            scratch.clear();
            self.copy(place, HEADER_BYTES, scratch);
            let kind = u32::from_ne_bytes([scratch[0], scratch[1], scratch[2], scratch[3]]);
            let misc = u16::from_ne_bytes([scratch[4], scratch[5]]);
            let length = usize::from(u16::from_ne_bytes([scratch[6], scratch[7]]));
            if length < HEADER_BYTES || length as u64 > head.wrapping_sub(place) {
                // The kernel writes whole records only; if it did not, what follows cannot be told apart.
                place = head;
                break;
            }
            scratch.clear();
            self.copy(place + HEADER_BYTES as u64, length - HEADER_BYTES, scratch);
            take(kind, misc, scratch);
            place += length as u64;
        }
        // ORDERING: Release keeps our reads before the store that lets the kernel write there again.
        tail.store(place, Ordering::Release);
    }

    /// Whether half of it or more is waiting.
    pub(super) fn is_half_full(&self) -> bool {
        self.waiting_bytes() >= self.data_bytes as u64 / 2
    }

    /// Bytes that are waiting.
    pub(super) fn waiting_bytes(&self) -> u64 {
        // SAFETY: as in `drain`.
        let tail = unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).data_tail) };
        // ORDERING: Relaxed; our own last store.
        self.head().wrapping_sub(tail.load(Ordering::Relaxed))
    }

    fn control(&self) -> *mut perf_event_mmap_page {
        self.base.as_ptr().cast()
    }

    /// Appends `length` bytes from `place` on, which may wrap around the end.
    fn copy(&self, place: u64, length: usize, into: &mut Vec<u8>) {
        debug_assert!(length <= self.data_bytes);
        let start = usize::try_from(place).unwrap_or(0) & (self.data_bytes - 1);
        let first = length.min(self.data_bytes - start);
        for (start, length) in [(start, first), (0, length - first)] {
            // SAFETY: the range lies in the data part of the mapping, and before `head`, where the kernel does not write
            // until `drain` has moved the tail.
            let bytes = unsafe {
                std::slice::from_raw_parts(self.base.as_ptr().add(self.page_bytes + start), length)
            };
            into.extend_from_slice(bytes);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length and nothing points into it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}
