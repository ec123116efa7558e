//! Records of the kernel's performance events, decoded from the bytes of a ring buffer.
//!
//! Source: perf_event_open(2), "MMAP layout", and the kernel's `include/uapi/linux/perf_event.h`.

use crate::mappings::Mapping;

/// `PERF_SAMPLE_IP`.
const SAMPLE_IP: u64 = 1 << 0;
/// `PERF_SAMPLE_TID`.
const SAMPLE_TID: u64 = 1 << 1;
/// `PERF_SAMPLE_TIME`.
const SAMPLE_TIME: u64 = 1 << 2;
/// `PERF_SAMPLE_ADDR`.
const SAMPLE_ADDR: u64 = 1 << 3;
/// `PERF_SAMPLE_CALLCHAIN`.
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
/// `PERF_SAMPLE_CPU`.
const SAMPLE_CPU: u64 = 1 << 7;
/// `PERF_SAMPLE_RAW`.
const SAMPLE_RAW: u64 = 1 << 10;
/// `PERF_SAMPLE_REGS_USER`.
const SAMPLE_REGS_USER: u64 = 1 << 12;
/// `PERF_SAMPLE_STACK_USER`.
const SAMPLE_STACK_USER: u64 = 1 << 13;
/// `PERF_SAMPLE_IDENTIFIER`.
const SAMPLE_IDENTIFIER: u64 = 1 << 16;

/// Markers in a call chain (`PERF_CONTEXT_*`) are the numbers from here up.
const CONTEXT_MARKERS: u64 = u64::MAX - 4095;

/// The registers that a stack is unwound from, as a mask for the kernel: frame pointer, stack pointer, instruction pointer;
/// before them those of a function's answer (ax) and of its second and first argument (si, di).
#[cfg(target_arch = "x86_64")]
pub const REGISTERS: u64 = 1 << 0 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8;
/// The registers that a stack is unwound from, as a mask for the kernel: x29, x30, sp, pc; before them those of a function's
/// answer or first argument (x0) and of its second (x1).
#[cfg(target_arch = "aarch64")]
pub const REGISTERS: u64 = 1 << 0 | 1 << 1 | 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// What each sample holds besides event, instruction pointer, thread, time and CPU.
///
/// Not how many events it stands for: the kernel, asked for that, samples every software event whatever period was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Content {
    /// The address that the event is about.
    pub has_address: bool,
    /// Return addresses found by frame pointers.
    pub has_callchain: bool,
    /// The fields of a tracepoint.
    pub has_raw: bool,
    /// User registers and, of the user's stack, at most so many bytes; 0 for neither.
    pub stack_bytes: u32,
}

impl Content {
    /// The kernel's `sample_type`.
    #[must_use]
    pub fn sample_type(self) -> u64 {
        let when = |has: bool, bits: u64| if has { bits } else { 0 };
        SAMPLE_IDENTIFIER
            | SAMPLE_IP
            | SAMPLE_TID
            | SAMPLE_TIME
            | SAMPLE_CPU
            | when(self.has_address, SAMPLE_ADDR)
            | when(self.has_callchain, SAMPLE_CALLCHAIN)
            | when(self.has_raw, SAMPLE_RAW)
            | when(self.stack_bytes > 0, SAMPLE_REGS_USER | SAMPLE_STACK_USER)
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfRecord {
    /// When it was written, in ns of the clock that the session chose.
    pub time_ns: u64,
    /// Process, as the observer numbers it; -1 when it ended already.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// The CPU it happened on.
    pub cpu: u32,
    /// What it says.
    pub news: News,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// An event happened.
    Sample(Sample),
    /// Something was mapped, moved or changed its protection.
    Mapping(NewMapping),
    /// A thread has a new name.
    Name {
        /// At most 15 bytes.
        name: String,
        /// By execve: the process's memory is a new one.
        is_exec: bool,
    },
    /// The thread of this record was started.
    Fork {
        /// Process of whoever started it.
        parent_pid: i32,
        /// Thread of whoever started it.
        parent_tid: i32,
    },
    /// The thread of this record ended.
    Exit,
    /// There was no room for this many records.
    Lost(u64),
    /// The kernel stopped an event that came too often, until its next tick.
    Throttled,
    /// Something else.
    Other,
}

/// An event that happened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sample {
    /// Which event, by the number that the kernel gave it.
    pub event: u64,
    /// The instruction.
    pub ip: u64,
    /// The address that the event is about; 0 when it was not asked for.
    pub address: u64,
    /// The event happened in the kernel, on behalf of the thread.
    pub is_in_kernel: bool,
    /// User addresses of the call chain, innermost first.
    pub callchain: Vec<u64>,
    /// The fields of a tracepoint.
    pub raw: Vec<u8>,
    /// The user's registers; none when it had none, or the process is a 32-bit one.
    pub registers: Option<Registers>,
    /// Registers that mean something at the beginning and the end of a function.
    pub function: FunctionRegisters,
    /// The user's stack, from the stack pointer up.
    pub stack: Vec<u8>,
}

/// The user's registers that a stack is unwound from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub fp: u64,
    /// Return address register; 0 where there is none.
    pub lr: u64,
}

/// What a function was called with, at its first instruction, and what it answers, at its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionRegisters {
    /// Answer.
    pub answer: u64,
    /// First and second argument.
    pub arguments: [u64; 2],
}

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMapping {
    /// First address.
    pub start: u64,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Where in the file it begins, in bytes.
    pub file_offset: u64,
    /// Which file.
    pub file: FileIdentity,
    /// `PROT_*`.
    pub protection: u32,
    /// `MAP_*`: of shared, private, locked and hugetlb only those that hold.
    pub flags: u32,
    /// Path, `//anon`, `[heap]`, `[stack]`, `[vdso]` and the like.
    pub name: String,
}

impl From<&Mapping> for NewMapping {
    /// As the kernel's record of the mapping would have been.
    fn from(mapping: &Mapping) -> Self {
        let has =
            |place: usize, letter: u8, bit: u32| if mapping.permissions[place] == letter { bit } else { 0 };
        let name = if mapping.name.is_empty() { "//anon".into() } else { mapping.name_text() };
        Self {
            start: mapping.start,
            length_bytes: mapping.bytes(),
            file_offset: mapping.offset,
            file: FileIdentity::Inode { device: mapping.device, inode: mapping.inode },
            protection: has(0, b'r', 1) | has(1, b'w', 2) | has(2, b'x', 4),
            flags: has(3, b's', 1) | has(3, b'p', 2),
            name: name.into_owned(),
        }
    }
}

/// How the kernel identifies a mapped file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileIdentity {
    /// By its place: inode 0 when there is no file.
    Inode {
        /// Device, major and minor number.
        device: (u32, u32),
        /// Inode.
        inode: u64,
    },
    /// By its contents.
    BuildId(Vec<u8>),
}

/// Decodes one record: its type and misc field from the header, and what follows the header.
///
/// None when the bytes contradict the layout.
#[must_use]
pub fn parse(kind: u32, misc: u16, body: &[u8], content: Content) -> Option<PerfRecord> {
    const IN_KERNEL: u16 = 1;
    let mut bytes = Bytes { left: body };
    if kind == 9 {
        return sample(&mut bytes, misc & 7 == IN_KERNEL, content);
    }
    // Every other record ends with the fields of `sample_id_all`: pid, tid, time, cpu, reserved, identifier.
    let mut id = Bytes { left: body.get(body.len().checked_sub(32)?..)? };
    let (pid, tid, time_ns, cpu) = (id.i32()?, id.i32()?, id.u64()?, id.u32()?);
    let record = |pid, tid, news| Some(PerfRecord { time_ns, pid, tid, cpu, news });
    match kind {
        2 | 13 => {
            let _event = if kind == 2 { bytes.u64()? } else { 0 };
            record(pid, tid, News::Lost(bytes.u64()?))
        }
        3 => {
            let (pid, tid) = (bytes.i32()?, bytes.i32()?);
            let name = bytes.text(32)?;
            record(pid, tid, News::Name { name, is_exec: misc & 1 << 13 != 0 })
        }
        4 | 7 => {
            let (pid, parent_pid, tid, parent_tid) = (bytes.i32()?, bytes.i32()?, bytes.i32()?, bytes.i32()?);
            record(pid, tid, if kind == 4 { News::Exit } else { News::Fork { parent_pid, parent_tid } })
        }
        5 => record(pid, tid, News::Throttled),
        10 => {
            let (pid, tid) = (bytes.i32()?, bytes.i32()?);
            record(pid, tid, News::Mapping(mapping(&mut bytes, misc)?))
        }
        _ => record(pid, tid, News::Other),
    }
}

/// `PERF_RECORD_MMAP2` after its process and thread.
fn mapping(bytes: &mut Bytes, misc: u16) -> Option<NewMapping> {
    const HAS_BUILD_ID: u16 = 1 << 14;
    let (start, length_bytes, file_offset) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
    let file = if misc & HAS_BUILD_ID != 0 {
        let length = usize::from(bytes.take(1)?[0]);
        bytes.take(3)?;
        FileIdentity::BuildId(bytes.take(20)?.get(..length)?.to_vec())
    } else {
        let device = (bytes.u32()?, bytes.u32()?);
        let (inode, _generation) = (bytes.u64()?, bytes.u64()?);
        FileIdentity::Inode { device, inode }
    };
    let (protection, flags) = (bytes.u32()?, bytes.u32()?);
    let name = bytes.text(32)?;
    Some(NewMapping { start, length_bytes, file_offset, file, protection, flags, name })
}

fn sample(bytes: &mut Bytes, is_in_kernel: bool, content: Content) -> Option<PerfRecord> {
    let mut sample = Sample { event: bytes.u64()?, ip: bytes.u64()?, is_in_kernel, ..Sample::default() };
    let (pid, tid, time_ns) = (bytes.i32()?, bytes.i32()?, bytes.u64()?);
    if content.has_address {
        sample.address = bytes.u64()?;
    }
    let (cpu, _reserved) = (bytes.u32()?, bytes.u32()?);
    if content.has_callchain {
        let length = usize::try_from(bytes.u64()?).ok()?.checked_mul(8)?;
        let chain = bytes
            .take(length)?
            .chunks_exact(8)
            .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)));
        sample.callchain = chain.filter(|address| *address < CONTEXT_MARKERS).collect();
    }
    if content.has_raw {
        let length = usize::try_from(bytes.u32()?).ok()?;
        sample.raw = bytes.take(length)?.to_vec();
    }
    if content.stack_bytes > 0 {
        const ABI_64: u64 = 2;
        let abi = bytes.u64()?;
        if abi != 0 {
            sample.function = function_registers(bytes)?;
            let registers = registers(bytes)?;
            sample.registers = (abi == ABI_64).then_some(registers);
        }
        let length = usize::try_from(bytes.u64()?).ok()?;
        let stack = bytes.take(length)?;
        if length > 0 {
            let filled = usize::try_from(bytes.u64()?).ok()?;
            sample.stack = stack.get(..filled)?.to_vec();
        }
    }
    Some(PerfRecord { time_ns, pid, tid, cpu, news: News::Sample(sample) })
}

/// The first registers of [`REGISTERS`], which the kernel writes in ascending order of their bits.
fn function_registers(bytes: &mut Bytes) -> Option<FunctionRegisters> {
    if cfg!(target_arch = "aarch64") {
        let (first, second) = (bytes.u64()?, bytes.u64()?);
        return Some(FunctionRegisters { answer: first, arguments: [first, second] });
    }
    let (answer, second, first) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
    Some(FunctionRegisters { answer, arguments: [first, second] })
}

/// The others.
fn registers(bytes: &mut Bytes) -> Option<Registers> {
    let fp = bytes.u64()?;
    let lr = if cfg!(target_arch = "aarch64") { bytes.u64()? } else { 0 };
    Some(Registers { fp, lr, sp: bytes.u64()?, ip: bytes.u64()? })
}

struct Bytes<'body> {
    left: &'body [u8],
}

impl<'body> Bytes<'body> {
    fn take(&mut self, length: usize) -> Option<&'body [u8]> {
        let (taken, left) = self.left.split_at_checked(length)?;
        self.left = left;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    /// All but the last `after` bytes, up to their first zero.
    fn text(&mut self, after: usize) -> Option<String> {
        let bytes = self.take(self.left.len().checked_sub(after)?)?;
        let bytes = bytes.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FAULT: Content =
        Content { has_address: true, has_callchain: true, has_raw: false, stack_bytes: 64 };

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn pair(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }

    /// The end of every record that is no sample: process 7, thread 8, time 900, CPU 1, event 5.
    fn id() -> Vec<u8> {
        words(&[pair(7, 8), 900, pair(1, 0), 5])
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_fault_is_read_with_its_address_registers_and_stack() {
        let user_marker = u64::MAX - 511;
        let mut body = words(&[5, 0x40_1000, pair(7, 8), 900, 0x7f00, pair(1, 0)]);
        body.extend(words(&[3, user_marker, 0x40_1000, 0x40_2000]));
        body.extend(words(&[2, 0xa0, 0x52, 0xd1, 0xbb, 0x55, 0x40_1000]));
        body.extend(words(&[16, 0x11, 0x22, 8]));
        let record = parse(9, 2, &body, FAULT).unwrap();
        assert_eq!((record.pid, record.tid, record.time_ns, record.cpu), (7, 8, 900, 1));
        let News::Sample(sample) = record.news else { panic!("no sample") };
        assert_eq!((sample.event, sample.ip, sample.address), (5, 0x40_1000, 0x7f00));
        assert_eq!(sample.callchain, [0x40_1000, 0x40_2000]);
        assert_eq!(sample.function, FunctionRegisters { answer: 0xa0, arguments: [0xd1, 0x52] });
        assert_eq!(sample.registers, Some(Registers { ip: 0x40_1000, sp: 0x55, fp: 0xbb, lr: 0 }));
        assert_eq!(sample.stack, 0x11_u64.to_ne_bytes());
        assert!(!sample.is_in_kernel);
        let News::Sample(sample) = parse(9, 1, &body, FAULT).unwrap().news else { panic!("no sample") };
        assert!(sample.is_in_kernel);
    }

    #[test]
    fn a_mapping_is_identified_by_inode_or_build_id() {
        let mut body = words(&[pair(7, 8), 0x1000, 0x2000, 0x3000]);
        let rest = [words(&[pair(5, 2)]), b"/lib/x.so\0\0\0\0\0\0\0".to_vec(), id()].concat();
        let mut by_inode = body.clone();
        by_inode.extend(words(&[pair(8, 1), 77, 0]));
        by_inode.extend(&rest);
        let News::Mapping(mapping) = parse(10, 2, &by_inode, FAULT).unwrap().news else { panic!() };
        assert_eq!((mapping.start, mapping.length_bytes, mapping.file_offset), (0x1000, 0x2000, 0x3000));
        assert_eq!((mapping.protection, mapping.flags, mapping.name.as_str()), (5, 2, "/lib/x.so"));
        assert_eq!(mapping.file, FileIdentity::Inode { device: (8, 1), inode: 77 });

        body.extend([4, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef]);
        body.extend([0; 16]);
        body.extend(&rest);
        let News::Mapping(mapping) = parse(10, 1 << 14, &body, FAULT).unwrap().news else { panic!() };
        assert_eq!(mapping.file, FileIdentity::BuildId(vec![0xde, 0xad, 0xbe, 0xef]));
    }

    #[test]
    fn the_life_of_threads_and_losses_are_read() {
        let name = [words(&[pair(7, 8)]), b"worker\0\0".to_vec(), id()].concat();
        for (misc, is_exec) in [(1 << 13, true), (0, false)] {
            let news = parse(3, misc, &name, FAULT).unwrap().news;
            assert_eq!(news, News::Name { name: "worker".into(), is_exec });
        }
        let fork = [words(&[pair(7, 1), pair(9, 1), 800]), id()].concat();
        let record = parse(7, 0, &fork, FAULT).unwrap();
        assert_eq!((record.pid, record.tid), (7, 9));
        assert_eq!(record.news, News::Fork { parent_pid: 1, parent_tid: 1 });
        assert_eq!(parse(4, 0, &fork, FAULT).unwrap().news, News::Exit);
        assert_eq!(parse(5, 0, &fork, FAULT).unwrap().news, News::Throttled);
        let lost = [words(&[5, 12]), id()].concat();
        assert_eq!(parse(2, 0, &lost, FAULT).unwrap().news, News::Lost(12));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(
            kind in 0_u32..25, misc: u16, body in prop::collection::vec(any::<u8>(), 0..300), bits in 0_u8..16,
        ) {
            let content = Content {
                has_address: bits & 1 != 0,
                has_callchain: bits & 2 != 0,
                has_raw: bits & 4 != 0,
                stack_bytes: u32::from(bits & 8) * 8,
            };
            let _ = parse(kind, misc, &body, content);
        }
    }
}
