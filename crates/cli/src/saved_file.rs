//! What was saved is read again: once and from its beginning to its end, so that it may be a pipe.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::failure::Failure;

/// Bytes by which a recording is known from a command.
const HEAD_BYTES: u64 = 128;

/// Most bytes of a file.
const LARGEST_BYTES: u64 = 1 << 30;

/// The recording of `subcommand`, if the first word is the name of one; then it is to be the only one.
///
/// # Errors
/// [`Failure::Usage`] for words behind it, [`Failure::Failed`] when it cannot be read to its end.
pub fn named<'words>(
    words: &'words [OsString],
    subcommand: &str,
    is_recording: impl Fn(&[u8]) -> bool,
) -> Result<Option<(&'words Path, Vec<u8>)>, Failure> {
    let [word, rest @ ..] = words else { return Ok(None) };
    let path = Path::new(word);
    let Ok(mut file) = File::open(path) else { return Ok(None) };
    let mut bytes = Vec::new();
    let read = file.by_ref().take(HEAD_BYTES).read_to_end(&mut bytes);
    if read.is_err() || !is_recording(&bytes) {
        return Ok(None);
    }
    if !rest.is_empty() {
        return Err(Failure::of_words_behind(path, subcommand));
    }
    let read = file.take(LARGEST_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| Failure::of_reading(path, error))?;
    Ok(Some((path, bytes)))
}

/// All of a file.
///
/// # Errors
/// [`Failure::Failed`] when it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST_BYTES).read_to_end(&mut bytes));
    read.map_err(|error| Failure::of_reading(path, error))?;
    Ok(bytes)
}
