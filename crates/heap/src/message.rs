//! Text without allocating: a fixed buffer that `write!` fills, and the one way to report misuse.

use crate::os;
use core::fmt::{self, Write};

/// A line of at most 512 bytes; what does not fit is cut.
pub struct Line {
    bytes: [u8; 512],
    used: usize,
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Self { bytes: [0; 512], used: 0 }
    }

    /// Ends the line, also one that was cut.
    fn end(&mut self) {
        self.used = self.used.min(self.bytes.len() - 1);
        self.bytes[self.used] = b'\n';
        self.used += 1;
    }

    /// The text so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.used..];
        let copied = text.len().min(room.len());
        room[..copied].copy_from_slice(&text.as_bytes()[..copied]);
        self.used += copied;
        Ok(())
    }
}

/// Writes one line, prefixed by our name, to standard error; a pipe that nobody reads is no reason to end the program.
pub fn say(text: fmt::Arguments) {
    let mut line = Line::new();
    // A `Line` never fails: it cuts.
    let _ = write!(line, "faultless: {text}");
    line.end();
    os::without_ending_by_writes(|| os::write_stderr(line.as_bytes()));
}

/// What a program did wrong with a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// The block is free already.
    DoubleFree,
    /// The pointer was never returned by an allocation function, or points into a block.
    InvalidPointer,
    /// A sized free names more bytes than the block has.
    WrongSize,
    /// A free block was written to: its list link points nowhere.
    CorruptedFreeList,
}

/// Reports misuse of `pointer` and ends the process. Allocates nothing.
#[cold]
pub fn misuse(kind: Misuse, pointer: usize) -> ! {
    let what = match kind {
        Misuse::DoubleFree => "double free",
        Misuse::InvalidPointer => "invalid pointer",
        Misuse::WrongSize => "wrong size (a sized free of more bytes than the block has)",
        Misuse::CorruptedFreeList => "corrupted free list (a block was written to after free)",
    };
    say(format_args!("{what}: {pointer:#x}"));
    os::die()
}
