//! Messages of the kernel's process connector: a process forked, became another program, ended.
//!
//! Source: include/uapi/linux/cn_proc.h, connector.h and netlink.h of the kernel; numbers in the machine's byte order.

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessEvent {
    /// When, by the monotonic clock.
    pub monotonic_ns: u64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The kernel's answer to the wish to listen: 0, or an error number.
    Answer(u32),
    /// A process made another one; threads are left out.
    Fork {
        /// Who made it.
        parent: i32,
        /// The new one.
        child: i32,
    },
    /// A process became another program.
    Exec(i32),
    /// The first thread of a process ended.
    Exit {
        /// Which process.
        pid: i32,
        /// As wait(2) gives it.
        wait_status: i32,
    },
}

/// Bytes of a netlink header.
const NETLINK_HEADER: usize = 16;
/// Bytes of the headers before an event: netlink's and the connector's.
const HEADERS: usize = NETLINK_HEADER + 20;
/// The connector's number for processes.
const PROCESSES: u32 = 1;

/// Kinds of events, as the kernel numbers them.
pub mod kind {
    /// A new process or thread.
    pub const FORK: u32 = 1;
    /// Another program.
    pub const EXEC: u32 = 2;
    /// A thread's end.
    pub const EXIT: u32 = 0x8000_0000;
}

/// The wish to hear of processes (or, without `listens`, no more); with `only` the kinds wanted, which kernels before 6.6 do
/// not understand and do not answer.
#[must_use]
pub fn wish(listens: bool, only: Option<u32>) -> Vec<u8> {
    let payload = if only.is_some() { 8_u16 } else { 4 };
    let length = HEADERS as u32 + u32::from(payload);
    const DONE: u16 = 3;
    let mut message = Vec::new();
    message.extend(length.to_ne_bytes());
    message.extend(DONE.to_ne_bytes());
    message.extend([0; 10]);
    for number in [PROCESSES, PROCESSES, 0, 0] {
        message.extend(number.to_ne_bytes());
    }
    message.extend(payload.to_ne_bytes());
    message.extend([0; 2]);
    message.extend((if listens { 1_u32 } else { 2 }).to_ne_bytes());
    message.extend(only.map(u32::to_ne_bytes).into_iter().flatten());
    message
}

/// Reads one message; none for what is not understood or is about threads.
#[must_use]
pub fn parse(message: &[u8]) -> Option<ProcessEvent> {
    let word = |at: usize| Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?));
    let pid = |at: usize| i32::try_from(word(at)?).ok();
    if word(NETLINK_HEADER)? != PROCESSES {
        return None;
    }
    let monotonic_ns = u64::from_ne_bytes(message.get(HEADERS + 8..HEADERS + 16)?.try_into().ok()?);
    let data = HEADERS + 16;
    let what = match word(HEADERS)? {
        0 => What::Answer(word(data)?),
        kind::FORK if word(data + 8)? == word(data + 12)? => {
            What::Fork { parent: pid(data + 4)?, child: pid(data + 12)? }
        }
        kind::EXEC => What::Exec(pid(data + 4)?),
        kind::EXIT if word(data)? == word(data + 4)? => {
            What::Exit { pid: pid(data + 4)?, wait_status: word(data + 8)? as i32 }
        }
        _ => return None,
    };
    Some(ProcessEvent { monotonic_ns, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u32, data: &[u32]) -> Vec<u8> {
        let mut message = wish(true, None);
        message.truncate(HEADERS);
        message.extend(kind.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(77_u64.to_ne_bytes());
        message.extend(data.iter().flat_map(|word| word.to_ne_bytes()));
        message
    }

    fn what(kind: u32, data: &[u32]) -> Option<What> {
        parse(&message(kind, data)).map(|event| event.what)
    }

    #[test]
    fn processes_are_told_from_threads() {
        assert_eq!(what(kind::FORK, &[10, 10, 20, 20]), Some(What::Fork { parent: 10, child: 20 }));
        assert_eq!(what(kind::FORK, &[11, 10, 12, 10]), None);
        assert_eq!(what(kind::EXEC, &[20, 20]), Some(What::Exec(20)));
        assert_eq!(
            what(kind::EXIT, &[20, 20, 0x300, 17, 10, 10]),
            Some(What::Exit { pid: 20, wait_status: 0x300 })
        );
        assert_eq!(what(kind::EXIT, &[12, 10, 0, 17, 1, 1]), None);
        assert_eq!(what(0, &[1]), Some(What::Answer(1)));
        assert_eq!(parse(&message(0, &[0])).unwrap().monotonic_ns, 77);
    }

    #[test]
    fn the_wish_says_its_own_length() {
        assert_eq!(wish(true, None).len(), 40);
        let filtered = wish(false, Some(kind::EXIT));
        assert_eq!((filtered.len(), filtered[0], filtered[36], filtered[43]), (44, 44, 2, 0x80));
    }

    proptest! {
        #[test]
        fn any_message_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
