//! The memory of the tool itself.

use nix::libc;

/// Threads started from now on take their memory from the first one's heap. Those of a service that do the same work by turns
/// would each keep as much as it ever took.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: two numbers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Whether there is room for so many bytes of addresses: they may be limited (`ulimit -v`), and a thread whose stack takes the last
/// of them ends the process, for it takes more when it begins.
#[must_use]
pub fn has_room(bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, which nobody else knows, is made where the kernel chooses, and removed.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        start != libc::MAP_FAILED && libc::munmap(start, bytes) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_some_memory_and_not_for_all_addresses() {
        assert!(has_room(1 << 20) && !has_room(usize::MAX >> 1));
    }
}
