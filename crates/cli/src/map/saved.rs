//! Saved files of mappings: smaps, maps, output of pmap -X; and what an earlier `faultless map --json` printed.

use std::path::Path;

use faultless_diagnosis::classification::{Sight, classify};
use faultless_records::{elf, mappings, pmap};
use faultless_report::map;
use faultless_report::map::saved_totals::SavedTotals;
use faultless_report::map::view::MapView;

use crate::failure::{Failure, hint_of_command};
use crate::saved_file;

/// The map in a file, or in standard input for `-`.
///
/// # Errors
/// [`Failure::Failed`] when it is neither smaps nor output of pmap -X.
pub fn view(path: &Path) -> Result<MapView, Failure> {
    let name = path.to_string_lossy();
    let bytes = read(path, &hint_of_command(&name, "map"))?;
    match saved_totals(path, &bytes)? {
        None => of_bytes(path, &bytes),
        Some(_) => {
            let shown = saved_file::shown(path);
            Err(Failure::Failed(format!(
                "{shown} holds sums that map --json printed: faultless map --diff {shown} OTHER compares them with another file's"
            )))
        }
    }
}

/// The sums in a file of any of the forms.
///
/// # Errors
/// As [`view`].
pub fn totals(path: &Path) -> Result<SavedTotals, Failure> {
    let bytes = read(path, "")?;
    if let Some(saved) = saved_totals(path, &bytes)? {
        return Ok(saved);
    }
    let view = of_bytes(path, &bytes)?;
    let is_measured = view.is_measured();
    Ok(SavedTotals { name: view.subject, totals: view.totals, is_measured, remarks: view.remarks })
}

/// What `map --json` printed, if it looks like that; neither of the other forms begins so.
fn saved_totals(path: &Path, bytes: &[u8]) -> Result<Option<SavedTotals>, Failure> {
    if let Some(text) = saved_file::of_another(path, bytes) {
        return Err(Failure::Failed(text));
    }
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(None);
    }
    let saved = map::saved_totals::load(&String::from_utf8_lossy(bytes));
    saved.map(Some).map_err(|reason| saved_file::unreadable(path, reason))
}

fn of_bytes(path: &Path, bytes: &[u8]) -> Result<MapView, Failure> {
    if bytes.starts_with(elf::MAGIC) || bytes.starts_with(b"#!") {
        let shown = path.display();
        return Err(Failure::Failed(format!("{shown} is a program: to run it, faultless map -- {shown}")));
    }
    let is_pmap = pmap::is_pmap(bytes);
    let parsed = if is_pmap { pmap::parse(bytes) } else { mappings::parse(bytes) };
    let mappings = parsed.map_err(|error| refused(path, &error.to_string()))?;
    let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
    let command = if is_pmap { pmap::command(bytes) } else { None };
    let shown = saved_file::shown(path).into_owned();
    let subject = match &command {
        Some((pid, command)) => format!("{shown}: {command} ({pid})"),
        None => shown,
    };
    let mut view = MapView::new(subject, command.map(|(pid, _)| pid), mappings, parts);
    view.remarks.push(
        "a saved file shows no contents: heaps and stacks are known by their layout only, and memory of other allocators and large blocks are unknown; --pid sees them".into(),
    );
    let mut usages = view.mappings.iter().filter_map(|mapping| mapping.usage.as_ref());
    if usages.any(|usage| !usage.is_divided()) {
        view.remarks.push(
            "of dirty pages this file has the shares alone (PSS), so dirty is less than what smaps or pmap -XX show where pages are shared".into(),
        );
    }
    Ok(view)
}

/// The bytes; of a file that is not there a hint says what may have been meant.
fn read(path: &Path, hint: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| refused(path, &error.to_string());
    let file = saved_file::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Failed(format!("no such file: {}{hint}", path.display())),
        _ => failed(error),
    })?;
    let mut bytes = saved_file::read_file(&[], file).map_err(failed)?;
    // Windows writes a mark before UTF-8, and UTF-16 where PowerShell redirects.
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    if matches!(bytes.as_slice(), [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [b' '..=b'~', 0, b' '..=b'~', 0, ..])
    {
        return Err(refused(
            path,
            "it is UTF-16, as PowerShell writes with >: iconv -f UTF-16 -t UTF-8 changes it back",
        ));
    }
    Ok(bytes)
}

fn refused(path: &Path, reason: &str) -> Failure {
    Failure::Failed(format!(
        "cannot read {}: {reason} (expected: a copy of /proc/PID/smaps, or what pmap -X PID printed)",
        saved_file::shown(path)
    ))
}
