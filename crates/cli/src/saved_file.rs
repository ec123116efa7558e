//! What was saved is read again: once and from its beginning to its end, so that it may be a pipe.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use faultless_probe::program;
use faultless_records::{core_file, elf};
use faultless_report::plain::plain;
use faultless_report::saved_form;

use crate::failure::{Failure, hint_of_command};

/// Bytes by which a recording is known from a command.
pub const HEAD_BYTES: u64 = 128;

/// How files of gzip, zstd and xz begin.
const COMPRESSED: [&[u8]; 3] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0"];

/// Most bytes of a file: a million mappings, or samples of days.
const LARGEST_BYTES: u64 = 1 << 30;

/// The recording of `subcommand`, if the first word is the name of one, or `-`; what stands behind it is the caller's to judge.
///
/// # Errors
/// [`Failure::Failed`] when it cannot be read to its end, for another file that is no command either ([`refuse`]), and for another
/// standard input.
pub fn named<'words>(
    words: &'words [OsString],
    subcommand: &str,
    is_recording: impl Fn(&[u8]) -> bool,
) -> Result<Option<(&'words Path, Vec<u8>)>, Failure> {
    let Some(word) = words.first() else { return Ok(None) };
    let path = Path::new(word);
    if word == "-" && !are_behind_dashes(words) {
        return recording(path, subcommand, is_recording).map(|bytes| Some((path, bytes)));
    }
    let mut bytes = Vec::new();
    let file = match head(path, &mut bytes) {
        Ok(file) if is_recording(&bytes) => file,
        head => {
            let head = head.map(|_| bytes.as_slice());
            let wanted = format!("recording of faultless {subcommand}");
            return refuse(words, subcommand, head, &wanted).map(|()| None);
        }
    };
    let whole = read_file(&bytes, file);
    Ok(Some((path, whole.map_err(|error| Failure::of_reading(path, error))?)))
}

/// As [`refuse`], for a file that was not read yet, and for a single word that is the name of neither a file nor a command.
///
/// # Errors
/// [`Failure::Failed`].
pub fn refuse_unread(words: &[OsString], subcommand: &str, wanted: &str) -> Result<(), Failure> {
    let [word] = words else { return Ok(()) };
    let mut bytes = Vec::new();
    let head = head(Path::new(word), &mut bytes);
    let is_missing = matches!(&head, Err(error) if error.kind() == io::ErrorKind::NotFound);
    if is_missing && !are_behind_dashes(words) && program::find(word).is_err() {
        let name = Path::new(word).to_string_lossy();
        return Err(Failure::Failed(format!("no such file: {name}{}", hint_of_command(&name, subcommand))));
    }
    refuse(words, subcommand, head.map(|_| bytes.as_slice()), wanted)
}

/// Refuses a single word that is the name of a file, is not `wanted` by `subcommand`, and is meant so: it may not be
/// executed, does not begin as programs do, and does not stand behind `--`. A program of that name would be a surprise.
fn refuse(
    words: &[OsString],
    subcommand: &str,
    head: io::Result<&[u8]>,
    wanted: &str,
) -> Result<(), Failure> {
    let [word] = words else { return Ok(()) };
    let path = Path::new(word);
    let is_data = |file: std::fs::Metadata| !file.is_dir() && file.permissions().mode() & 0o111 == 0;
    if are_behind_dashes(words) || !path.metadata().is_ok_and(is_data) {
        return Ok(());
    }
    let head = head.map_err(|error| Failure::of_reading(path, error))?;
    let another = of_another(path, head);
    if head.starts_with(b"#!") || (head.starts_with(elf::MAGIC) && another.is_none()) {
        return Ok(());
    }
    let shown = path.display();
    let mut text = match another {
        _ if head.is_empty() => format!("{shown} is empty: no {wanted}"),
        Some(text) => text,
        None => format!("{shown} is no {wanted}"),
    };
    if program::find(word).is_ok() {
        text.push_str(&format!(" (faultless {subcommand} -- {shown} runs the command of this name)"));
    }
    Err(Failure::Failed(text))
}

/// Whether these words, which are the last, are a command's for certain.
fn are_behind_dashes(words: &[OsString]) -> bool {
    std::env::args_os().rev().nth(words.len()).is_some_and(|word| word == "--")
}

/// What shows a file that begins so, if it is the recording of an instrument, a campaign, a core file, or a compressed one.
pub fn of_another(path: &Path, head: &[u8]) -> Option<String> {
    let (shown, name) = (plain(&shown(path)), plain(&path.to_string_lossy()));
    if core_file::is_core(head) {
        // Of all readers this one needs a file.
        let file = if name == "-" { "FILE" } else { &name };
        return Some(format!("{shown} is a core file: show it with `faultless heap {file}`"));
    }
    if COMPRESSED.iter().any(|magic| head.starts_with(magic)) {
        return Some(format!("{shown} is compressed: unpack it first"));
    }
    let (kind, reader) = saved_form::kind_and_reader(head)?;
    Some(format!("{shown} is a {kind}: show it with `faultless {reader} {name}`"))
}

/// Opens a file; `-` is standard input.
///
/// # Errors
/// The kernel's.
pub fn open(path: &Path) -> io::Result<File> {
    match path == Path::new("-") {
        true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => File::open(path),
    }
}

/// How [`open`]'s is called.
#[must_use]
pub fn shown(path: &Path) -> Cow<'_, str> {
    if path == Path::new("-") { "standard input".into() } else { path.to_string_lossy() }
}

/// As [`Failure::of_reading`], of a file that [`open`] was to open.
#[must_use]
pub fn unreadable(path: &Path, reason: impl Display) -> Failure {
    Failure::of_reading(Path::new(shown(path).as_ref()), reason)
}

/// Opens a file and reads its first bytes.
fn head(path: &Path, bytes: &mut Vec<u8>) -> io::Result<File> {
    let mut file = File::open(path)?;
    file.by_ref().take(HEAD_BYTES).read_to_end(bytes)?;
    Ok(file)
}

/// All of a file, or of standard input for `-`.
///
/// # Errors
/// [`Failure::Failed`] when it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = open(path).and_then(|file| read_file(&[], file));
    read.map_err(|error| unreadable(path, error))
}

/// As [`read`], of a recording of `subcommand`.
///
/// # Errors
/// [`Failure::Failed`] when it cannot be read, and for another file, with what shows that.
pub fn recording(
    path: &Path,
    subcommand: &str,
    is_recording: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, Failure> {
    let bytes = read(path)?;
    if is_recording(&bytes) {
        return Ok(bytes);
    }
    Err(match of_another(path, &bytes) {
        Some(text) => Failure::Failed(text),
        None => unreadable(path, format_args!("it is no recording of `faultless {subcommand} --record`")),
    })
}

/// All of a file of which this much was read already.
///
/// # Errors
/// As [`read_whole`]; where its size tells, nothing is read.
pub fn read_file(head: &[u8], file: File) -> io::Result<Vec<u8>> {
    let of = file.metadata()?;
    match of.is_file() && of.len() > LARGEST_BYTES {
        true => Err(too_large()),
        false => read_whole(head.chain(file)),
    }
}

/// All that is to be read.
///
/// # Errors
/// Those of reading; more than [`LARGEST_BYTES`] is one, since a part would be taken for something else.
fn read_whole(from: impl Read) -> io::Result<Vec<u8>> {
    read_up_to(from, LARGEST_BYTES)?.ok_or_else(too_large)
}

fn too_large() -> io::Error {
    io::Error::other("it is larger than 1 GiB")
}

/// None of what is longer.
fn read_up_to(from: impl Read, most_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let length = from.take(most_bytes + 1).read_to_end(&mut bytes)?;
    Ok((length as u64 <= most_bytes).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_not_read_in_part() {
        assert_eq!(read_up_to(&b"1234"[..], 4).unwrap().as_deref(), Some(&b"1234"[..]));
        assert_eq!(read_up_to(&b"12345"[..], 4).unwrap(), None);
        assert_eq!(read_up_to(io::repeat(b'1'), 4).unwrap(), None);
    }
}
