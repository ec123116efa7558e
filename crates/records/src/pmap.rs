//! Saved output of `pmap -X` and `pmap -XX`: the same figures as `smaps`, one mapping a line.
//!
//! The columns differ between versions of procps, so they are read by the heading. Names are printed without their folder
//! unless `-p` was given.

use crate::mappings::{
    DELETED, Mapping, MappingsError, Usage, decimal, hexadecimal, lines, read_permissions, split, word,
};

/// Whether a file looks like output of pmap: its first or second line has the heading of the columns.
#[must_use]
pub fn is_pmap(bytes: &[u8]) -> bool {
    lines(bytes).take(4).any(|line| is_heading(line) || is_heading_of_x(line))
}

/// The process and the command in the first line, such as `42:   java -jar x.jar`.
#[must_use]
pub fn command(bytes: &[u8]) -> Option<(i32, String)> {
    let line = lines(bytes).next()?;
    let (number, command) = split(line, b':')?;
    let pid = i32::try_from(decimal(number.trim_ascii())?).ok()?;
    Some((pid, String::from_utf8_lossy(command.trim_ascii()).into_owned()))
}

/// Reads the whole output.
///
/// # Errors
/// [`MappingsError`]; the line with the sums must be there, or it was cut off.
pub fn parse(bytes: &[u8]) -> Result<Vec<Mapping>, MappingsError> {
    let mut columns: Vec<&[u8]> = Vec::new();
    let mut mappings: Vec<Mapping> = Vec::new();
    let line_count = lines(bytes).count();
    for (place, line) in lines(bytes).enumerate() {
        if columns.is_empty() {
            if is_heading_of_x(line) {
                return Err(MappingsError::LowerX);
            }
            if is_heading(line) {
                columns = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
            } else if place > 2 {
                return Err(MappingsError::of_line(place + 1, line));
            }
            continue;
        }
        if line.trim_ascii().starts_with(b"==") {
            // The heading of another one stands behind the line with its number.
            let number = lines(bytes).skip(place).position(is_heading).map(|behind| place + behind);
            return match number {
                Some(number) => Err(MappingsError::Several { number }),
                None if mappings.is_empty() => Err(MappingsError::Empty),
                None => Ok(mappings),
            };
        }
        let is_last = place + 1 == line_count;
        match row(&columns, line) {
            Some(mapping) if mappings.last().is_some_and(|last| last.end > mapping.start) => {
                return Err(MappingsError::Disorder { number: place + 1 });
            }
            Some(mapping) => mappings.push(mapping),
            None if is_last || line.trim_ascii().is_empty() => break,
            None => return Err(MappingsError::of_line(place + 1, line)),
        }
    }
    Err(if mappings.is_empty() { MappingsError::Empty } else { MappingsError::Truncated })
}

fn is_heading(line: &[u8]) -> bool {
    let has = |name: &[u8]| line.split(|byte| *byte == b' ').any(|word| word == name);
    has(b"Address") && has(b"Perm") && has(b"Size") && has(b"Rss")
}

/// What `pmap -x` heads its columns with.
fn is_heading_of_x(line: &[u8]) -> bool {
    let names: [&[u8]; 6] = [b"Address", b"Kbytes", b"RSS", b"Dirty", b"Mode", b"Mapping"];
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).eq(names)
}

fn row(columns: &[&[u8]], line: &[u8]) -> Option<Mapping> {
    let mut mapping = Mapping::default();
    let mut usage = Usage::default();
    let mut bytes = 0;
    let mut rest = line;
    for column in columns {
        match *column {
            b"Mapping" | b"VmFlagsMapping" => break,
            b"VmFlags" => {
                rest = take_flags(&mut mapping, rest);
                continue;
            }
            _ => {}
        }
        let (value, after) = word(rest)?;
        rest = after;
        match *column {
            b"Address" => mapping.start = hexadecimal(value)?,
            b"Perm" => mapping.permissions = read_permissions(value)?,
            b"Offset" => mapping.offset = hexadecimal(value)?,
            b"Device" => {
                let (major, minor) = split(value, b':')?;
                mapping.device =
                    (u32::try_from(hexadecimal(major)?).ok()?, u32::try_from(hexadecimal(minor)?).ok()?);
            }
            b"Inode" => mapping.inode = decimal(value)?,
            b"Size" => bytes = decimal(value)?.checked_mul(1024)?,
            b"THPeligible" | b"ProtectionKey" => {}
            name => usage.set(name, decimal(value)?.checked_mul(1024)?),
        }
    }
    if columns.last() == Some(&b"VmFlagsMapping".as_slice()) {
        rest = take_flags(&mut mapping, rest);
    }
    mapping.name = name(rest.trim_ascii(), mapping.device);
    mapping.end = mapping.start.checked_add(bytes)?;
    mapping.usage = Some(usage);
    (mapping.start < mapping.end).then_some(mapping)
}

/// The name as `smaps` has it, where it is one that the kernel gives to memory that is shared: of its own file system, which
/// has no device, and without the slash or folder that pmap leaves out.
fn name(printed: &[u8], device: (u32, u32)) -> Vec<u8> {
    let is_shared_segment = printed.starts_with(b"SYSV") && printed.ends_with(DELETED.as_bytes());
    let folder: &[u8] = match printed {
        _ if device.0 != 0 => b"",
        b"zero (deleted)" => b"/dev/",
        _ if is_shared_segment || printed.starts_with(b"memfd:") => b"/",
        _ => b"",
    };
    [folder, printed].concat()
}

/// Words of two lower-case letters; a name that is one itself is lost, which no file of a process has been seen to be.
fn take_flags<'line>(mapping: &mut Mapping, line: &'line [u8]) -> &'line [u8] {
    let mut rest = line;
    while let Some((flag, after)) = word(rest) {
        if flag.len() != 2 || !flag.iter().all(u8::is_ascii_lowercase) {
            break;
        }
        if !mapping.flags.is_empty() {
            mapping.flags.push(b' ');
        }
        mapping.flags.extend_from_slice(flag);
        rest = after;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn output_of_a_lower_x_is_told_from_other_files() {
        let text = b"42:   sleep 60\nAddress           Kbytes     RSS   Dirty Mode  Mapping\n\
            000056107e8f1000     188     188       0 r---- sleep\n";
        assert!(is_pmap(text));
        assert!(parse(text).unwrap_err().to_string().contains("pmap -X"));
    }

    const PMAP: &str = "\
42:   java -jar my app.jar
         Address Perm   Offset Device Inode   Size   Rss   Pss Pss_Dirty Anonymous Swap THPeligible Mapping
    7f0c07000000 rw-p 00000000  00:00     0   2736  2736  2700      2736      2736    4           0 
    7f0c072ac000 ---p 00000000  00:00     0  62800     0     0         0         0    0           0 
    7f0c24800000 r--s 00000000  fe:00   326    612   612   612         0         0    0           0 my lib.so
                                           ====== ===== ===== ========= ========= ==== =========== 
                                            66148  3348  3312      2736      2736    4           0 KB 
";

    #[test]
    fn columns_are_read_by_their_heading() {
        assert!(is_pmap(PMAP.as_bytes()));
        assert_eq!(command(PMAP.as_bytes()), Some((42, "java -jar my app.jar".into())));
        let mappings = parse(PMAP.as_bytes()).unwrap();
        assert_eq!(mappings.len(), 3);
        assert_eq!((mappings[0].start, mappings[0].end), (0x7f0c_0700_0000, 0x7f0c_072a_c000));
        let usage = mappings[0].usage.unwrap();
        assert_eq!((usage.rss_bytes, usage.pss_bytes, usage.swap_bytes), (2736 << 10, 2700 << 10, 4096));
        assert!(mappings[1].is_inaccessible() && mappings[1].name.is_empty());
        assert_eq!((mappings[2].name.as_slice(), mappings[2].inode), (b"my lib.so".as_slice(), 326));
    }

    #[test]
    fn the_older_columns_and_those_with_flags_are_read() {
        let older = "1: a\nAddress Perm Offset Device Inode Size Rss Pss Referenced Anonymous Swap Locked Mapping\n\
                     1000 rw-p 00000000 00:00 0 4 4 4 4 4 0 0 [heap]\n==== === \n 4 4 4 4 4 0 0 KB\n";
        assert_eq!(parse(older.as_bytes()).unwrap()[0].name, b"[heap]");
        let all = "1: a\nAddress Perm Offset Device Inode Size Rss Pss VmFlags Mapping\n\
                   1000 rw-p 00000000 00:00 0 4 4 4 rd wr nh  [heap]\n==== === \n";
        let mapping = &parse(all.as_bytes()).unwrap()[0];
        assert!(mapping.flags == b"rd wr nh" && mapping.name == b"[heap]");
    }

    #[test]
    fn memory_that_is_shared_has_the_names_of_smaps() {
        let named = |device: &str, name: &str| {
            let line = format!("7f4a407c6000 rw-s 00000000 {device} 241 1024 1024 1024 1024 0 0 0 {name}");
            let heading = PMAP.lines().nth(1).unwrap();
            let text = format!("1: a\n{heading}\n{line}\n ==== ==== \n");
            parse(text.as_bytes()).unwrap()[0].name_text().into_owned()
        };
        for (printed, name) in [
            ("memfd:mymem (deleted)", "/memfd:mymem (deleted)"),
            ("/memfd:mymem (deleted)", "/memfd:mymem (deleted)"),
            ("SYSV00000000 (deleted)", "/SYSV00000000 (deleted)"),
            ("zero (deleted)", "/dev/zero (deleted)"),
            ("zero", "zero"),
            ("SYSV", "SYSV"),
        ] {
            assert_eq!(named("00:01", printed), name);
        }
        assert_eq!(named("fe:00", "memfd:a"), "memfd:a", "a file on a disk");
    }

    #[test]
    fn output_of_several_processes_is_refused() {
        let twice = PMAP.to_owned() + &PMAP.replace("42:", "43:");
        assert_eq!(parse(twice.as_bytes()), Err(MappingsError::Several { number: 8 }));
    }

    #[test]
    fn what_is_no_output_of_pmap_is_refused_by_its_line() {
        let rows: Vec<&str> = PMAP.split_inclusive('\n').collect();
        let with = |place: usize, row: &str| {
            let mut rows = rows.clone();
            rows.insert(place, row);
            parse(rows.concat().as_bytes()).unwrap_err()
        };
        let line = |number, text: &str| MappingsError::Line { number, text: text.into() };
        assert_eq!(with(3, "nonsense\n"), line(4, "nonsense"));
        assert_eq!(with(3, rows[3]), MappingsError::Disorder { number: 5 });
        assert_eq!(
            parse([rows[0], rows[1], rows[5], rows[6]].concat().as_bytes()),
            Err(MappingsError::Empty)
        );
        for other in ["Address Perm Size\n", "1000-2000 r--p 00000000 00:00 0\nRss: 4 kB\n"] {
            assert!(!is_pmap(other.as_bytes()));
            let lines = other.repeat(4);
            let fourth = lines.lines().nth(3).unwrap();
            assert_eq!(parse(lines.as_bytes()), Err(line(4, fourth)));
        }
    }

    #[test]
    fn output_that_was_cut_off_is_refused() {
        for length in 0..PMAP.len() {
            let cut = &PMAP.as_bytes()[..length];
            let has_sums = cut.windows(2).any(|pair| pair == b"==");
            assert_eq!(parse(cut).is_ok(), has_sums, "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_damage_makes_it_panic(at in 0..PMAP.len(), byte in any::<u8>()) {
            let mut bytes = PMAP.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = parse(&bytes);
            let _ = command(&bytes);
        }
    }
}
