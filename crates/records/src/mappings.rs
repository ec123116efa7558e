//! `/proc/PID/maps` and `/proc/PID/smaps`: the mappings of a process, and what of each is in memory.
//!
//! Both have the same heading lines; `smaps` has fields under each. Source: proc_pid_maps(5), proc_pid_smaps(5).

use std::borrow::Cow;
use std::fmt;
use std::ops::AddAssign;

use crate::allocator::Allocator;

/// The kernel's mark behind the path of a file that was deleted or replaced since it was opened.
pub const DELETED: &str = " (deleted)";

/// One mapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// `rwx` and `p` or `s`, `-` for what is missing.
    pub permissions: [u8; 4],
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// Path, name of the kernel such as `[heap]`, or nothing; not necessarily UTF-8.
    pub name: Vec<u8>,
    /// What is in memory; none where only `maps` was read.
    pub usage: Option<Usage>,
    /// The two-letter flags of `VmFlags`, as written; empty where they are not known.
    pub flags: Vec<u8>,
}

/// What of a mapping is in memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident.
    pub rss_bytes: u64,
    /// Resident, each page divided by the number of processes that map it.
    pub pss_bytes: u64,
    /// Resident and written to, each page divided as in PSS.
    pub pss_dirty_bytes: u64,
    /// Shared with others and as on disk.
    pub shared_clean_bytes: u64,
    /// Shared with others and written to.
    pub shared_dirty_bytes: u64,
    /// Its own and as on disk.
    pub private_clean_bytes: u64,
    /// Its own and written to.
    pub private_dirty_bytes: u64,
    /// Resident and of no file.
    pub anonymous_bytes: u64,
    /// Resident and given up by `MADV_FREE`: the kernel takes it when it needs it.
    pub lazy_free_bytes: u64,
    /// Resident as huge pages of no file.
    pub anonymous_huge_bytes: u64,
    /// Pages of hugetlbfs, which the kernel counts into no other figure here.
    pub hugetlb_bytes: u64,
    /// Swapped out.
    pub swap_bytes: u64,
    /// Locked.
    pub locked_bytes: u64,
}

impl Usage {
    /// Written to: what the system must keep in memory or in swap. Where only the share is known, as in `pmap -X`, that.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        match self.shared_dirty_bytes.saturating_add(self.private_dirty_bytes) {
            0 => self.pss_dirty_bytes,
            bytes => bytes,
        }
    }

    /// Whether it is known how much of it is shared or its own, clean or dirty: `pmap -X` does not show that.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        let parts = [
            self.shared_clean_bytes,
            self.shared_dirty_bytes,
            self.private_clean_bytes,
            self.private_dirty_bytes,
        ];
        self.rss_bytes == 0 || parts.iter().any(|&bytes| bytes > 0)
    }

    /// The field with this name in `smaps` and in the columns of `pmap -X`; hugetlb pages add up.
    pub(crate) fn set(&mut self, name: &[u8], bytes: u64) {
        match name {
            b"Rss" => self.rss_bytes = bytes,
            b"Pss" => self.pss_bytes = bytes,
            b"Pss_Dirty" => self.pss_dirty_bytes = bytes,
            b"Shared_Clean" => self.shared_clean_bytes = bytes,
            b"Shared_Dirty" => self.shared_dirty_bytes = bytes,
            b"Private_Clean" => self.private_clean_bytes = bytes,
            b"Private_Dirty" => self.private_dirty_bytes = bytes,
            b"Anonymous" => self.anonymous_bytes = bytes,
            b"LazyFree" => self.lazy_free_bytes = bytes,
            b"AnonHugePages" => self.anonymous_huge_bytes = bytes,
            b"Shared_Hugetlb" | b"Private_Hugetlb" => {
                self.hugetlb_bytes = self.hugetlb_bytes.saturating_add(bytes);
            }
            b"Swap" => self.swap_bytes = bytes,
            b"Locked" => self.locked_bytes = bytes,
            _ => {}
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let sum = |left: &mut u64, right: u64| *left = left.saturating_add(right);
        sum(&mut self.rss_bytes, other.rss_bytes);
        sum(&mut self.pss_bytes, other.pss_bytes);
        sum(&mut self.pss_dirty_bytes, other.pss_dirty_bytes);
        sum(&mut self.shared_clean_bytes, other.shared_clean_bytes);
        sum(&mut self.shared_dirty_bytes, other.shared_dirty_bytes);
        sum(&mut self.private_clean_bytes, other.private_clean_bytes);
        sum(&mut self.private_dirty_bytes, other.private_dirty_bytes);
        sum(&mut self.anonymous_bytes, other.anonymous_bytes);
        sum(&mut self.lazy_free_bytes, other.lazy_free_bytes);
        sum(&mut self.anonymous_huge_bytes, other.anonymous_huge_bytes);
        sum(&mut self.hugetlb_bytes, other.hugetlb_bytes);
        sum(&mut self.swap_bytes, other.swap_bytes);
        sum(&mut self.locked_bytes, other.locked_bytes);
    }
}

impl Mapping {
    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it can be read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.permissions[0] == b'r'
    }

    /// Whether it can be written to.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.permissions[1] == b'w'
    }

    /// Whether its code can be run.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.permissions[2] == b'x'
    }

    /// Whether writes reach others who map the same.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.permissions[3] == b's'
    }

    /// Whether nothing may be done with it: a guard or a reservation.
    #[must_use]
    pub fn is_inaccessible(&self) -> bool {
        self.permissions[..3] == *b"---"
    }

    /// Whether it is private memory without a file and without a name.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.inode == 0 && self.name.is_empty() && !self.is_shared()
    }

    /// Its name as text.
    #[must_use]
    pub fn name_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }

    /// The path of its file, without the kernel's mark of a deleted one; none for other mappings.
    #[must_use]
    pub fn path(&self) -> Option<&[u8]> {
        let path = self.name.strip_suffix(DELETED.as_bytes()).unwrap_or(&self.name);
        (path.first() == Some(&b'/')).then_some(path)
    }
}

/// Why a text is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappingsError {
    /// Nothing in it.
    Empty,
    /// A line is no heading of a mapping and no field under one.
    Line {
        /// Its number, from 1.
        number: usize,
        /// Its beginning.
        text: String,
    },
    /// It ends in the middle of a mapping: the last one lacks what the others have.
    Truncated,
    /// It is an `smaps_rollup`.
    Rollup,
    /// It is what `pmap -x` printed.
    LowerX,
    /// Another process begins behind the one that was read.
    Several {
        /// Number of the line, from 1.
        number: usize,
    },
    /// Mappings are not in ascending order: several processes in one file, or a damaged one.
    Disorder {
        /// Number of the line, from 1.
        number: usize,
    },
}

impl fmt::Display for MappingsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(out, "it is empty"),
            Self::Line { number, text } => {
                write!(out, "line {number} is no line of smaps, maps or pmap -X: '{text}'")
            }
            Self::Truncated => write!(out, "it was cut off in the middle of a mapping"),
            Self::Several { number } => {
                write!(out, "another process begins in line {number}: a file of one process is expected")
            }
            Self::LowerX => write!(out, "it is what pmap -x printed: pmap -X, with a capital, is needed"),
            Self::Rollup => write!(out, "it is an smaps_rollup, the sums alone, which do not say of what"),
            Self::Disorder { number } => write!(
                out,
                "the mapping in line {number} lies below the one before it: a file of one process is expected"
            ),
        }
    }
}

impl std::error::Error for MappingsError {}

impl MappingsError {
    pub(crate) fn of_line(number: usize, line: &[u8]) -> Self {
        let text = String::from_utf8_lossy(line).chars().take(60).collect();
        Self::Line { number, text }
    }
}

/// The allocator library among the files that are mapped; libc's where there is none.
#[must_use]
pub fn allocator(mappings: &[Mapping]) -> Allocator {
    let paths: Vec<_> = mappings.iter().filter_map(Mapping::path).map(String::from_utf8_lossy).collect();
    Allocator::of_process(paths.iter().map(Cow::as_ref))
}

/// Paths of the mapped files in a `maps`, each once, in the order of their first mapping; other lines are passed over.
#[must_use]
pub fn mapped_files(bytes: &[u8]) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for mapping in lines(bytes).filter_map(heading) {
        let Some(path) = mapping.path().map(String::from_utf8_lossy) else { continue };
        if !files.iter().any(|known| *known == path) {
            files.push(path.into_owned());
        }
    }
    files
}

/// Reads a whole `smaps` or `maps`.
///
/// # Errors
/// [`MappingsError`].
pub fn parse(bytes: &[u8]) -> Result<Vec<Mapping>, MappingsError> {
    let mut mappings: Vec<Mapping> = Vec::with_capacity(bytes.len() / 700);
    let whole_lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    // What follows the last line feed is the beginning of a line that was cut off, whatever it looks like.
    let bad = |place: usize, line: &[u8]| match place == whole_lines && place > 0 {
        true => MappingsError::Truncated,
        false => MappingsError::of_line(place + 1, line),
    };
    for (place, line) in lines(bytes).enumerate() {
        // Fields begin with a letter of the upper case, headings with a digit of the lower.
        if line.first().is_some_and(u8::is_ascii_uppercase) {
            let known = mappings.last_mut().and_then(|mapping| field(mapping, line));
            known.ok_or_else(|| bad(place, line))?;
        } else if let Some(mapping) = heading(line) {
            if mappings.last().is_some_and(|last| last.end > mapping.start) {
                return Err(MappingsError::Disorder { number: place + 1 });
            }
            mappings.push(mapping);
        } else if !line.is_empty() {
            return Err(bad(place, line));
        }
    }
    let Some(last) = mappings.last() else { return Err(MappingsError::Empty) };
    if mappings.len() == 1 && last.name == b"[rollup]" {
        return Err(MappingsError::Rollup);
    }
    let fields = |mapping: &Mapping| (mapping.usage.is_some(), !mapping.flags.is_empty());
    // No process has a single mapping, so a lone one must have all fields to be believed.
    let expected = if mappings.len() == 1 { (true, true) } else { fields(&mappings[0]) };
    let is_short = fields(last) != expected;
    if is_short || !bytes.ends_with(b"\n") {
        return Err(MappingsError::Truncated);
    }
    Ok(mappings)
}

/// The sums in `smaps_rollup`.
#[must_use]
pub fn rollup(bytes: &[u8]) -> Usage {
    let mut whole = Mapping::default();
    for line in lines(bytes) {
        // The first line is a heading, and others may hold what is not known here.
        let _ = field(&mut whole, line);
    }
    whole.usage.unwrap_or_default()
}

/// Lines without their ends; carriage returns of files that passed through other systems are dropped.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// `55d000-55e000 r--p 00000000 fe:00 131    /usr/bin/cat`; the path may contain blanks.
fn heading(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = word(line)?;
    let (start, end) = split(range, b'-')?;
    let (permissions, rest) = word(rest)?;
    let (offset, rest) = word(rest)?;
    let (device, rest) = word(rest)?;
    let (inode, rest) = word(rest)?;
    let (major, minor) = split(device, b':')?;
    let mapping = Mapping {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        permissions: read_permissions(permissions)?,
        offset: hexadecimal(offset)?,
        device: (u32::try_from(hexadecimal(major)?).ok()?, u32::try_from(hexadecimal(minor)?).ok()?),
        inode: decimal(inode)?,
        name: unescaped(rest.trim_ascii_start()),
        usage: None,
        flags: Vec::new(),
    };
    (mapping.start < mapping.end).then_some(mapping)
}

/// `Rss:    12 kB` or `VmFlags: rd wr`. None: not of this form.
fn field(mapping: &mut Mapping, line: &[u8]) -> Option<()> {
    let (name, value) = split(line, b':')?;
    if name == b"VmFlags" {
        mapping.flags = value.trim_ascii().to_vec();
        return Some(());
    }
    // Kernels of Android before 5.17, which name anonymous memory in a line of its own; some in the heading, too.
    if name == b"Name" {
        if mapping.name.is_empty() {
            mapping.name = unescaped(value.trim_ascii());
        }
        return Some(());
    }
    if !name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return None;
    }
    let (number, unit) = word(value.trim_ascii_start())?;
    let number = decimal(number)?;
    if unit.trim_ascii() == b"kB" {
        mapping.usage.get_or_insert_default().set(name, number.checked_mul(1024)?);
    }
    Some(())
}

pub(crate) fn read_permissions(word: &[u8]) -> Option<[u8; 4]> {
    let permissions: [u8; 4] = word.get(..4)?.try_into().ok()?;
    let allowed: [&[u8]; 4] = [b"r-", b"w-", b"x-", b"ps"];
    permissions.iter().zip(allowed).all(|(byte, allowed)| allowed.contains(byte)).then_some(permissions)
}

/// The kernel writes a line feed in a path as `\012`.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, after)) = rest.split_first() {
        let is_escape = rest.starts_with(b"\\012");
        plain.push(if is_escape { b'\n' } else { *byte });
        rest = if is_escape { &rest[4..] } else { after };
    }
    plain
}

/// The first word and what follows its blank.
pub(crate) fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    if text.is_empty() {
        return None;
    }
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    Some((&text[..end], text.get(end + 1..).unwrap_or_default()))
}

pub(crate) fn split(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == separator)?;
    Some((&text[..at], &text[at + 1..]))
}

pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits
        .iter()
        .try_fold(0, |number: u64, digit| Some(number << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}

pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(char::from(*digit).to_digit(10)?))
    })
}

#[cfg(test)]
mod tests;
