//! The heap of the tool itself.

/// Threads started from now on take their memory from the first one's heap. Those of a service that do the same work by turns
/// would each keep as much as it ever took.
pub fn share() {
    #[cfg(target_env = "gnu")]
    // SAFETY: two numbers.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1)
    };
}
