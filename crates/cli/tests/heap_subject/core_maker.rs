//! Core files made of a live process, as the kernel makes them: no core pattern, limit or debugger stands in the way.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

struct Mapping {
    start: u64,
    end: u64,
    is_writable: bool,
    offset: u64,
    path: Option<String>,
}

/// Writes all memory of a process that can be read, with the notes that name it, its thread and its files.
pub fn write_core(pid: u32, path: &Path) {
    let mappings = mappings(pid);
    let notes = notes(pid, &mappings);
    let table_bytes = 56 * (mappings.len() as u64 + 1);
    let mut offset = (64 + table_bytes + notes.len() as u64).next_multiple_of(4096);
    let mut head = vec![0; 64];
    head[..6].copy_from_slice(b"\x7fELF\x02\x01");
    head[16] = 4;
    head[32..40].copy_from_slice(&64_u64.to_le_bytes());
    head[54] = 56;
    head[56..58].copy_from_slice(&(mappings.len() as u16 + 1).to_le_bytes());
    head.extend(entry(4, 0, [64 + table_bytes, 0, 0, notes.len() as u64, 0, 4]));
    let file = File::create(path).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    for mapping in &mappings {
        let bytes = mapping.end - mapping.start;
        let mut contents = vec![0; bytes as usize];
        let is_dumped = memory.read_exact_at(&mut contents, mapping.start).is_ok();
        let file_bytes = if is_dumped { bytes } else { 0 };
        let flags = if mapping.is_writable { 6 } else { 4 };
        head.extend(entry(1, flags, [offset, mapping.start, 0, file_bytes, bytes, 4096]));
        file.write_all_at(&contents[..file_bytes as usize], offset).unwrap();
        offset += file_bytes;
    }
    head.extend(notes);
    file.write_all_at(&head, 0).unwrap();
}

fn mappings(pid: u32) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let parse = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let mapping = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        Mapping {
            start: parse(start),
            end: parse(end),
            is_writable: words[1].contains('w'),
            offset: parse(words[2]),
            path: words.get(5).filter(|path| path.starts_with('/')).map(|path| (*path).to_owned()),
        }
    };
    let all = text.lines().filter(|line| !line.contains("[v") && line.contains(" r")).map(mapping);
    all.collect()
}

fn entry(kind: u32, flags: u32, words: [u64; 6]) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), flags.to_le_bytes()].concat();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

fn notes(pid: u32, mappings: &[Mapping]) -> Vec<u8> {
    let mut process = vec![0; 136];
    process[24..28].copy_from_slice(&pid.to_le_bytes());
    process[40..44].copy_from_slice(b"surv");
    let files: Vec<&Mapping> = mappings.iter().filter(|mapping| mapping.path.is_some()).collect();
    let mut list = vec![files.len() as u64, 4096];
    list.extend(files.iter().flat_map(|file| [file.start, file.end, file.offset / 4096]));
    let mut list: Vec<u8> = list.iter().flat_map(|word| word.to_le_bytes()).collect();
    for path in files.iter().filter_map(|file| file.path.as_ref()) {
        list.extend(path.as_bytes());
        list.push(0);
    }
    [note(1, &[0; 336]), note(3, &process), note(0x4649_4c45, &list)].concat()
}

fn note(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = [5_u32.to_le_bytes(), (body.len() as u32).to_le_bytes(), kind.to_le_bytes()].concat();
    bytes.extend(b"CORE\0\0\0\0");
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
