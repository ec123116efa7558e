//! Raw system calls.

use core::arch::asm;

#[cfg(target_arch = "x86_64")]
pub mod number {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const SCHED_YIELD: usize = 24;
    pub const MREMAP: usize = 25;
    #[cfg(test)]
    pub const MINCORE: usize = 27;
    pub const MADVISE: usize = 28;
    pub const GETPID: usize = 39;
    pub const FCNTL: usize = 72;
    pub const FTRUNCATE: usize = 77;
    pub const GETRUSAGE: usize = 98;
    pub const GETPPID: usize = 110;
    pub const FSTATFS: usize = 138;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const MUNLOCK: usize = 150;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const SCHED_GETAFFINITY: usize = 204;
    pub const CLOCK_GETTIME: usize = 228;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const PRLIMIT64: usize = 302;
    pub const KCMP: usize = 312;
    pub const MEMFD_CREATE: usize = 319;
    pub const MEMBARRIER: usize = 324;
    pub const MLOCK2: usize = 325;
}

/// Tested by emulation only (`cargo xtask aarch64`).
#[cfg(target_arch = "aarch64")]
pub mod number {
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const CLOSE: usize = 57;
    pub const FSTAT: usize = 80;
    pub const MMAP: usize = 222;
    pub const MPROTECT: usize = 226;
    pub const MUNMAP: usize = 215;
    pub const SCHED_YIELD: usize = 124;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const RT_SIGTIMEDWAIT: usize = 137;
    pub const GETRUSAGE: usize = 165;
    pub const PRCTL: usize = 167;
    pub const MUNLOCK: usize = 229;
    pub const MREMAP: usize = 216;
    #[cfg(test)]
    pub const MINCORE: usize = 232;
    pub const MADVISE: usize = 233;
    pub const GETPID: usize = 172;
    pub const GETPPID: usize = 173;
    pub const GETTID: usize = 178;
    pub const TGKILL: usize = 131;
    pub const FCNTL: usize = 25;
    pub const FTRUNCATE: usize = 46;
    pub const FSTATFS: usize = 44;
    pub const FUTEX: usize = 98;
    pub const CLOCK_GETTIME: usize = 113;
    pub const SCHED_GETAFFINITY: usize = 123;
    pub const OPENAT: usize = 56;
    pub const PRLIMIT64: usize = 261;
    pub const KCMP: usize = 272;
    pub const MEMFD_CREATE: usize = 279;
    pub const MEMBARRIER: usize = 283;
    pub const MLOCK2: usize = 284;
}

/// Of mappings, the same on both.
pub mod flag {
    pub const PROT_NONE: usize = 0;
    pub const PROT_READ_WRITE: usize = 3;
    pub const MAP_PRIVATE: usize = 0x02;
    pub const MAP_FIXED: usize = 0x10;
    pub const MAP_ANONYMOUS: usize = 0x20;
    pub const MAP_NORESERVE: usize = 0x4000;
}

/// Makes system call `number`. Returns the kernel's answer; -4095..=-1 is a negated errno.
///
/// # Safety
/// The call with these arguments must not break memory that Rust code relies on.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the register use is the x86-64 Linux convention; the caller answers for the call's effect.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    answer
}

/// Makes system call `number`. Returns the kernel's answer; -4095..=-1 is a negated errno.
///
/// # Safety
/// The call with these arguments must not break memory that Rust code relies on.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the register use is the aarch64 Linux convention; the caller answers for the call's effect.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number, inlateout("x0") args[0] as isize => answer,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack)
        );
    }
    answer
}
