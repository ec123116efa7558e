//! The memory of a process that left a core file.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use faultless_records::core_file::{self, CoreError, HEADER_BYTES, Header, MOST_NOTE_BYTES, Notes, Segment};

/// Most bytes of a table of segments: more mappings than a kernel allows.
const MOST_TABLE_BYTES: u64 = 1 << 30;

/// Why a core file cannot be used; shown as one line.
#[derive(Debug)]
pub struct ImageError {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Read(io::Error),
    /// It is a pipe, as from what unpacks it, or a device.
    NoFile,
    Core(CoreError),
}

impl fmt::Display for ImageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.reason {
            Reason::Read(error) => write!(out, "cannot read {path}: {error}"),
            Reason::NoFile => write!(
                out,
                "cannot read {path}: a core file is read here and there, and not from a pipe; unpack it into a file"
            ),
            Reason::Core(error) => write!(out, "cannot use {path}: {error}"),
        }
    }
}

impl std::error::Error for ImageError {}

/// An open core file.
#[derive(Debug)]
pub struct CoreImage {
    file: File,
    file_bytes: u64,
    segments: Vec<Segment>,
    /// What its notes say.
    pub notes: Notes,
}

impl CoreImage {
    /// Opens a core file and reads its headers.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let failed = |reason| ImageError { path: path.to_owned(), reason };
        // Looked at first: a pipe would be waited for.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(failed(Reason::NoFile));
        }
        let file = File::open(path).map_err(|error| failed(Reason::Read(error)))?;
        let file_bytes = file.metadata().map_err(|error| failed(Reason::Read(error)))?.len();
        Self::read(file, file_bytes).map_err(failed)
    }

    fn read(file: File, file_bytes: u64) -> Result<Self, Reason> {
        let mut head = [0; HEADER_BYTES];
        let read = read_up_to(&file, &mut head, 0)?;
        let header = Header::parse(&head[..read]).map_err(Reason::Core)?;
        let mut extension = [0; 4];
        if let Some(offset) = header.extension_offset() {
            read_exactly(&file, &mut extension, offset)?;
        }
        let table_bytes = header.table_bytes(extension);
        if table_bytes > MOST_TABLE_BYTES.min(file_bytes) {
            return Err(Reason::Core(CoreError::Damaged));
        }
        let mut table = vec![0; usize::try_from(table_bytes).unwrap_or(0)];
        read_exactly(&file, &mut table, header.table_offset)?;
        let (segments, place) = core_file::segments(&table).map_err(Reason::Core)?;
        let mut notes = Vec::new();
        if let Some((offset, bytes)) = place {
            let bytes = bytes.min(MOST_NOTE_BYTES).min(file_bytes.saturating_sub(offset));
            notes.resize(usize::try_from(bytes).unwrap_or(0), 0);
            read_exactly(&file, &mut notes, offset)?;
        }
        Ok(Self { file, file_bytes, segments, notes: Notes::parse(&notes) })
    }

    /// Stretches of memory, in ascending order.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Bytes that the headers promise and the file no longer has.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        let end = self.segments.iter().map(|segment| segment.offset.saturating_add(segment.file_bytes)).max();
        end.unwrap_or(0).saturating_sub(self.file_bytes)
    }

    /// Fills `buffer` from `address` on; false where the process had nothing, or the file does not have it.
    #[must_use]
    pub fn read_at(&self, address: u64, buffer: &mut [u8]) -> bool {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = address + filled as u64;
            let behind = self.segments.partition_point(|segment| segment.start <= at);
            let Some(segment) = self.segments[..behind].last().filter(|segment| at < segment.end) else {
                return false;
            };
            let within = at - segment.start;
            let Some(left) = segment.file_bytes.checked_sub(within).filter(|left| *left > 0) else {
                return false;
            };
            let length = (buffer.len() - filled).min(usize::try_from(left).unwrap_or(usize::MAX));
            let part = &mut buffer[filled..filled + length];
            if self.file.read_exact_at(part, segment.offset.saturating_add(within)).is_err() {
                return false;
            }
            filled += length;
        }
        true
    }
}

fn read_exactly(file: &File, buffer: &mut [u8], offset: u64) -> Result<(), Reason> {
    file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Reason::Core(CoreError::Damaged),
        _ => Reason::Read(error),
    })
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, Reason> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Reason::Read(error)),
        }
    }
    Ok(filled)
}
