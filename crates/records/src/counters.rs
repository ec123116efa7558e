//! `/proc/PID/stat`: who a process is and what it has used, read from bytes without allocating: a sampler does it many times a
//! second.

/// What one reading of `/proc/PID/stat` says of a process; all its threads together.
///
/// Source: proc_pid_stat(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters<'text> {
    /// The name, at most 15 bytes; any byte but NUL.
    pub name: &'text [u8],
    /// One letter: R, S, D, T, t, Z, X, I; that of the first thread.
    pub state: u8,
    /// The process that it is a child of.
    pub parent: i32,
    /// Kernel flags of the first thread.
    pub flags: u32,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// The same of children that ended and were waited for.
    pub children_minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// The same of children that ended and were waited for.
    pub children_major_faults: u64,
    /// Processor time in the program, in clock ticks.
    pub user_ticks: u64,
    /// Processor time in the kernel, in clock ticks.
    pub system_ticks: u64,
    /// Processor time in the program of children that ended and were waited for, in clock ticks.
    pub children_user_ticks: u64,
    /// The same in the kernel.
    pub children_system_ticks: u64,
    /// Threads.
    pub threads: u32,
    /// When it began, in clock ticks after boot.
    pub start_ticks: u64,
    /// Address space; 0 when the first thread has ended.
    pub vsize_bytes: u64,
    /// Resident pages; 0 when the first thread has ended.
    pub rss_pages: u64,
    /// Bottom of the stack, which another program gets at another place; 0 or 1 where we may not see it.
    pub stack_start: u64,
    /// Where the heap of brk(2) begins; 0 where we may not see it.
    pub heap_start: u64,
}

/// Source: PF_KTHREAD in the kernel's include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// Source: PF_EXITING in the same file.
const EXITING: u32 = 0x0000_0004;

impl<'text> Counters<'text> {
    /// Reads the file's bytes; none when they are not whole.
    #[must_use]
    pub fn parse(bytes: &'text [u8]) -> Option<Self> {
        // The name may hold parentheses and blanks: it ends at the last one.
        let start = bytes.iter().position(|byte| *byte == b'(')? + 1;
        let end = bytes.iter().rposition(|byte| *byte == b')')?;
        let name = bytes.get(start..end)?;
        let mut fields = bytes.get(end + 1..)?.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let state = *fields.next()?.first()?;
        let parent = i32::try_from(number(fields.next()?)?).ok()?;
        // Fields are numbered from 1; the parent is the fourth.
        let flags = u32::try_from(number(fields.nth(9 - 5)?)?).ok()?;
        let mut next = || number(fields.next()?);
        let (minor_faults, children_minor_faults) = (next()?, next()?);
        let (major_faults, children_major_faults) = (next()?, next()?);
        let (user_ticks, system_ticks) = (next()?, next()?);
        let (children_user_ticks, children_system_ticks) = (next()?, next()?);
        let threads = u32::try_from(number(fields.nth(20 - 18)?)?).ok()?;
        let start_ticks = number(fields.nth(22 - 21)?)?;
        let (vsize_bytes, rss_pages) = (number(fields.next()?)?, number(fields.next()?)?);
        let stack_start = number(fields.nth(28 - 25)?)?;
        let heap_start = fields.nth(47 - 29).and_then(number).unwrap_or(0);
        Some(Self {
            name,
            state,
            parent,
            flags,
            minor_faults,
            children_minor_faults,
            major_faults,
            children_major_faults,
            user_ticks,
            system_ticks,
            children_user_ticks,
            children_system_ticks,
            threads,
            start_ticks,
            vsize_bytes,
            rss_pages,
            stack_start,
            heap_start,
        })
    }

    /// Whether it is a thread of the kernel, which has no memory of its own.
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether all of it has ended. The first thread alone may end before the others, and looks like a zombie too.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.first_thread_has_ended() && self.threads <= 1
    }

    /// Whether the thread that was read has ended.
    #[must_use]
    pub fn thread_has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether the thread that was read is on its way out, or has ended.
    #[must_use]
    pub fn is_exiting(&self) -> bool {
        self.thread_has_ended() || self.flags & EXITING != 0
    }

    /// Whether the first thread has ended, so that the sizes in here are 0 whatever the process holds; or is about to, and
    /// has let go of the memory.
    #[must_use]
    pub fn first_thread_has_ended(&self) -> bool {
        self.thread_has_ended() || (self.flags & EXITING != 0 && self.vsize_bytes == 0)
    }
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Address space and resident pages in `/proc/PID/statm`.
#[must_use]
pub fn pages_of_statm(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut fields = bytes.split(u8::is_ascii_whitespace);
    Some((number(fields.next()?)?, number(fields.next()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: &str = "42 (a) b (c) S 7 20 20 0 -1 4194560 100 11 3 12 70 21 1 2 20 0 4 0 31415 1000000 200 \
                         18446744073709551615 1 2 140720000000000 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 5 6 93000000\n";

    #[test]
    fn each_counter_is_taken_from_its_field() {
        let counters = Counters::parse(WHOLE.as_bytes()).unwrap();
        assert_eq!((counters.name, counters.state, counters.parent), (&b"a) b (c"[..], b'S', 7));
        assert_eq!((counters.minor_faults, counters.children_minor_faults), (100, 11));
        assert_eq!((counters.major_faults, counters.children_major_faults), (3, 12));
        assert_eq!((counters.user_ticks, counters.system_ticks, counters.threads), (70, 21, 4));
        assert_eq!((counters.children_user_ticks, counters.children_system_ticks), (1, 2));
        assert_eq!((counters.start_ticks, counters.vsize_bytes, counters.rss_pages), (31415, 1_000_000, 200));
        assert_eq!((counters.stack_start, counters.heap_start), (140_720_000_000_000, 93_000_000));
        assert!(!counters.is_kernel_thread() && !counters.thread_has_ended() && !counters.is_ended());
        assert!(!counters.is_exiting() && !counters.first_thread_has_ended());
        let kernel = WHOLE.replace(" 4194560 ", " 2129984 ");
        assert!(Counters::parse(kernel.as_bytes()).unwrap().is_kernel_thread());
    }

    #[test]
    fn a_first_thread_that_ended_before_the_others_is_no_end() {
        let zombie = WHOLE.replace(" S 7", " Z 7");
        let counters = Counters::parse(zombie.as_bytes()).unwrap();
        assert!(counters.first_thread_has_ended() && counters.is_exiting() && !counters.is_ended());
        let leaving = WHOLE.replace(" 4194560 ", " 4194564 ");
        let counters = Counters::parse(leaving.as_bytes()).unwrap();
        assert!(counters.is_exiting() && !counters.first_thread_has_ended(), "it still has its memory");
        let empty = leaving.replace(" 1000000 ", " 0 ");
        assert!(Counters::parse(empty.as_bytes()).unwrap().first_thread_has_ended());
        let of_kernel = empty.replace(" 4194564 ", " 2129984 ");
        assert!(!Counters::parse(of_kernel.as_bytes()).unwrap().first_thread_has_ended());
        let alone = zombie.replace(" 20 0 4 0 ", " 20 0 1 0 ");
        assert!(Counters::parse(alone.as_bytes()).unwrap().is_ended());
    }

    #[test]
    fn damaged_texts_are_refused() {
        for end in 0..WHOLE.find(" 0 0 0 0 0 0 0 0 0 17").unwrap() - "140720000000000".len() {
            assert_eq!(Counters::parse(&WHOLE.as_bytes()[..end]), None, "{}", &WHOLE[..end]);
        }
        assert_eq!(Counters::parse(WHOLE.replace(" 100 ", " -1 ").as_bytes()), None);
        assert_eq!(pages_of_statm(b"700 415 300 5 0 90 0\n"), Some((700, 415)));
        assert_eq!(pages_of_statm(b"700"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Counters::parse(&bytes);
            let _ = pages_of_statm(&bytes);
        }

        #[test]
        fn any_change_of_one_byte_is_read_or_refused(at in 0..WHOLE.len(), byte: u8) {
            let mut bytes = WHOLE.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = Counters::parse(&bytes);
        }
    }
}
