//! A core file as the heap walk reads it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use faultless_diagnosis::glibc_heap::arenas::Data;
use faultless_diagnosis::glibc_heap::choice::{self, Outcome};
use faultless_diagnosis::glibc_heap::walk::HeapWalk;
use faultless_diagnosis::glibc_heap::{self, Area, Memory, Page};
use faultless_probe::core_image::CoreImage;
use faultless_probe::{loader, mapped_file};
use faultless_records::core_file::{MappedFile, Segment};
use faultless_records::glibc::is_libc;
use faultless_records::quantity::several;
use faultless_report::heap::{HeapView, Source};

use super::process::nothing_found;
use crate::failure::Failure;

/// Bytes at the start of a library that tell one build from another.
const HEAD_BYTES: usize = 2048;

/// Walks the heaps of the process that left a core file.
///
/// # Errors
/// [`Failure`] when it is no core file.
pub fn look(path: &Path) -> Result<HeapView, Failure> {
    let image = CoreImage::open(path).map_err(|error| Failure::Failed(error.to_string()))?;
    let began = Instant::now();
    let files = &image.notes.files;
    let missing = (image.missing_bytes() > 0).then(|| several(image.missing_bytes(), "byte"));
    let mut remarks = Vec::new();
    if let Some(missing) = &missing {
        remarks.push(format!(
            "The file was cut off, {missing} missing (ulimit -c, or a full disk), and what lies there cannot be walked."
        ));
    }
    let is_named = files.iter().any(|file| is_libc(&file.path));
    // The program's own file stands first; a static program has its malloc in it.
    let wanted = |file: &&MappedFile| if is_named { is_libc(&file.path) } else { file.path == files[0].path };
    let version = files
        .iter()
        .find(|file| is_libc(&file.path) && file.offset == 0)
        .and_then(|file| version_of(&image, file));
    if is_named && version.is_none() {
        remarks.push(
            "The libc of the process is not on this machine: its layout was chosen by what it explains best."
                .to_owned(),
        );
    }
    let (walks, is_unused) = walks(&image, files.iter().filter(wanted), version);
    match missing {
        Some(missing) if walks.is_empty() => {
            return Err(Failure::Failed(format!(
                "cannot use {}: it was cut off, {missing} missing (ulimit -c, or a full disk), the data of libc among them",
                path.display()
            )));
        }
        None if walks.is_empty() => remarks.push(nothing_found(is_unused, !is_named)),
        _ => {}
    }
    let (pid, name) = match &image.notes.process {
        Some((pid, name)) => (Some(*pid), name.clone()),
        None => (None, "a process".to_owned()),
    };
    remarks.push(
        "A core file does not say which pages had memory: what a trim would give back is a bound.".to_owned(),
    );
    Ok(HeapView {
        pid,
        name,
        source: Source::Core(path.display().to_string()),
        took: began.elapsed(),
        glibc: version,
        is_static: !is_named,
        counted_rss_bytes: None,
        walks,
        other: None,
        faultless: None,
        remarks,
    })
}

/// Walks what can be walked; whether some libc was not used at all.
fn walks<'files>(
    image: &CoreImage,
    files: impl Iterator<Item = &'files MappedFile>,
    version: Option<(u32, u32)>,
) -> (Vec<HeapWalk>, bool) {
    let mut walks = Vec::new();
    let mut is_unused = false;
    for file in files {
        match walk(image, file, version) {
            Some(Outcome::Walked(walk)) => walks.push(*walk),
            Some(Outcome::Unused) => is_unused = true,
            Some(Outcome::Nothing) | None => {}
        }
    }
    (walks, is_unused)
}

/// Walks the heaps that the data of a libc lead to; none where this part of the file has no data.
fn walk(image: &CoreImage, file: &MappedFile, version: Option<(u32, u32)>) -> Option<Outcome> {
    let is_data = |segment: &Segment| segment.start == file.start && segment.is_writable;
    if !image.segments().iter().any(is_data) {
        return None;
    }
    let (memory, areas) = (CoreMemory { image }, areas(image, &image.notes.files));
    let behind = areas.iter().find(|area| area.start == file.end && area.is_anonymous && area.is_writable);
    let whole = (file.start, behind.map_or(file.end, |area| area.end));
    let data = Data::read(&memory, whole).or_else(|| Data::read(&memory, (file.start, file.end)))?;
    Some(choice::walk(&memory, &areas, &data, version))
}

/// The version of a libc, if the file of that path is still the one that the process had mapped.
fn version_of(image: &CoreImage, file: &MappedFile) -> Option<(u32, u32)> {
    let library = mapped_file::open_regular(Path::new(OsStr::from_bytes(&file.path))).ok()?;
    let (mut mapped, mut present) = ([0; HEAD_BYTES], [0; HEAD_BYTES]);
    library.read_exact_at(&mut present, 0).ok()?;
    let is_same = image.read_at(file.start, &mut mapped) && mapped == present;
    is_same.then(|| loader::version_of(&library)).flatten()
}

fn areas(image: &CoreImage, files: &[MappedFile]) -> Vec<Area> {
    let is_of_file = |start: u64| files.iter().any(|file| (file.start..file.end).contains(&start));
    glibc_heap::joined(image.segments().iter().map(|segment| Area {
        start: segment.start,
        end: segment.end,
        is_writable: segment.is_writable,
        is_anonymous: !is_of_file(segment.start),
        is_break: false,
    }))
}

struct CoreMemory<'image> {
    image: &'image CoreImage,
}

impl Memory for CoreMemory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.image.read_at(address, buffer)
    }

    fn changes(&self) -> bool {
        false
    }

    fn pages(&self, _: u64, _: usize) -> Option<Vec<Page>> {
        None
    }
}
