use super::*;
use proptest::prelude::*;

const SMAPS: &str = "\
55d000-55e000 r--p 00001000 fe:00 131                /usr/my bin/c\\012at (deleted)
Size:                  4 kB
Rss:                   4 kB
Pss:                   1 kB
Pss_Dirty:             0 kB
Shared_Clean:          4 kB
THPeligible:           0
ProtectionKey:         0
VmFlags: rd mr mw me 
7f0000-7f4000 rw-p 00000000 00:00 0 
Size:                 16 kB
Rss:                   8 kB
Pss:                   8 kB
Private_Dirty:         8 kB
Shared_Hugetlb:        4 kB
Private_Hugetlb:       8 kB
LazyFree:              4 kB
VmFlags: rd wr mr nh 
";

#[test]
fn headings_and_fields_are_read() {
    let mappings = parse(SMAPS.as_bytes()).unwrap();
    let [file, anonymous] = mappings.as_slice() else { panic!("{mappings:?}") };
    assert_eq!((file.start, file.end, file.offset, file.inode), (0x55d000, 0x55e000, 0x1000, 131));
    assert_eq!((file.device, file.permissions), ((0xfe, 0), *b"r--p"));
    assert_eq!(file.name, b"/usr/my bin/c\nat (deleted)");
    assert_eq!(file.path(), Some(b"/usr/my bin/c\nat".as_slice()));
    assert!(anonymous.is_anonymous() && anonymous.flags == b"rd wr mr nh");
    let usage = anonymous.usage.unwrap();
    assert_eq!((usage.rss_bytes, usage.dirty_bytes(), usage.hugetlb_bytes), (8192, 8192, 12288));
    assert_eq!(usage.lazy_free_bytes, 4096);
}

#[test]
fn each_field_is_what_the_kernel_says_of_it() {
    let names = "Rss Pss Pss_Dirty Shared_Clean Shared_Dirty Private_Clean Private_Dirty Anonymous LazyFree AnonHugePages \
                 Shared_Hugetlb Swap Locked Referenced";
    let lines: String = names.split(' ').zip(1..).map(|(name, kib)| format!("{name}: {kib} kB\n")).collect();
    let expected = Usage {
        rss_bytes: 1 << 10,
        pss_bytes: 2 << 10,
        pss_dirty_bytes: 3 << 10,
        shared_clean_bytes: 4 << 10,
        shared_dirty_bytes: 5 << 10,
        private_clean_bytes: 6 << 10,
        private_dirty_bytes: 7 << 10,
        anonymous_bytes: 8 << 10,
        lazy_free_bytes: 9 << 10,
        anonymous_huge_bytes: 10 << 10,
        hugetlb_bytes: 11 << 10,
        swap_bytes: 12 << 10,
        locked_bytes: 13 << 10,
    };
    assert_eq!(rollup(lines.as_bytes()), expected);
}

#[test]
fn a_name_in_a_line_of_its_own_is_that_of_the_mapping_above() {
    let text = "\
7f0000-7f4000 rw-p 00000000 00:00 0 
Name:           [anon:libc_malloc]
Size:                 16 kB
Rss:                   8 kB
VmFlags: rd wr mr 
7f5000-7f6000 rw-p 00000000 00:00 0          [anon:thread signal stack]
Name:           [anon:thread signal stack]
Size:                  4 kB
Rss:                   4 kB
VmFlags: rd wr mr 
";
    let mappings = parse(text.as_bytes()).unwrap();
    let names: Vec<_> = mappings.iter().map(Mapping::name_text).collect();
    assert_eq!(names, ["[anon:libc_malloc]", "[anon:thread signal stack]"]);
    assert_eq!(mappings[0].usage.unwrap().rss_bytes, 8192);
}

#[test]
fn each_file_is_listed_once_without_anonymous_mappings() {
    let text = "\
55d000-55e000 r--p 00000000 fe:00 131 /usr/bin/cat
55e000-55f000 r-xp 00001000 fe:00 131 /usr/bin/cat
560000-561000 rw-p 00000000 00:00 0   [heap]
7f0000-7f1000 rw-p 00000000 00:00 0
nonsense

7f1000-7f2000 r--p 00000000 fe:00 97  /opt/my\\012libs/libx.so (deleted)
7ffd00-7ffe00 r-xp 00000000 00:00 0   [vdso]
55d000-55e000 r--p
";
    assert_eq!(mapped_files(text.as_bytes()), ["/usr/bin/cat", "/opt/my\nlibs/libx.so"]);
}

#[test]
fn maps_is_read_without_usage() {
    let text = "1000-2000 ---p 00000000 00:00 0\n2000-3000 rw-s 00000000 00:01 7   /SYSV00000001 (deleted)\n";
    let mappings = parse(text.as_bytes()).unwrap();
    assert!(mappings[0].is_inaccessible() && mappings[0].usage.is_none());
    assert!(mappings[1].is_shared() && !mappings[1].is_anonymous() && !mappings[1].is_inaccessible());
    for (end, is_anonymous) in
        [("p 0 0:0 0", true), ("s 0 0:0 0", false), ("p 0 0:0 0 [heap]", false), ("p 0 8:0 7", false)]
    {
        let mapping = &parse(format!("1000-2000 r-x{end}\n3000-4000 ---p 0 0:0 0\n").as_bytes()).unwrap()[0];
        assert_eq!(mapping.is_anonymous(), is_anonymous, "{end}");
    }
}

#[test]
fn a_file_cut_off_or_of_something_else_is_refused() {
    assert_eq!(parse(b""), Err(MappingsError::Empty));
    assert_eq!(parse(b"\n\n"), Err(MappingsError::Empty));
    assert!(matches!(parse(b"hello world\n"), Err(MappingsError::Line { number: 1, .. })));
    assert!(matches!(parse(b"Rss: 1 kB\n"), Err(MappingsError::Line { number: 1, .. })));
    let twice = [SMAPS, SMAPS].concat();
    assert!(matches!(parse(twice.as_bytes()), Err(MappingsError::Disorder { number: 19 })));
    let overlapping = b"1000-3000 r--p 00000000 00:00 0 \n2000-4000 r--p 00000000 00:00 0 \n";
    assert_eq!(parse(overlapping), Err(MappingsError::Disorder { number: 2 }));
    for length in 1..SMAPS.len() {
        let whole = length == SMAPS.len() || SMAPS[..length].ends_with("me \n");
        assert_eq!(parse(&SMAPS.as_bytes()[..length]).is_ok(), whole, "{length}");
    }
    let in_second_heading = SMAPS.find("p 00000000 00:00").unwrap();
    assert_eq!(parse(&SMAPS.as_bytes()[..in_second_heading]), Err(MappingsError::Truncated));
    let spoilt = SMAPS.replacen("Rss:  ", "Rss?  ", 1);
    assert!(matches!(parse(spoilt.as_bytes()), Err(MappingsError::Line { number: 3, .. })));
    let sums = "1000-7ffd ---p 00000000 00:00 0    [rollup]\nRss:  16 kB\n";
    assert_eq!(parse(sums.as_bytes()), Err(MappingsError::Rollup));
    for address in ["11111111111111111", ""] {
        let line = format!("1000-{address} r--p 0 0:0 0\n1000-2000 r--p 0 0:0 0\n");
        assert!(parse(line.as_bytes()).is_err(), "{address} is no address");
    }
}

#[test]
fn the_sums_of_a_process_are_read_past_their_heading() {
    let text =
        "55d0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:  16 kB\nPss_Anon:  1 kB\nPrivate_Hugetlb:  8 kB\n";
    let expected = Usage { rss_bytes: 16 << 10, hugetlb_bytes: 8 << 10, ..Usage::default() };
    assert_eq!(rollup(text.as_bytes()), expected);
}

#[test]
fn this_process_is_read() {
    let bytes = std::fs::read("/proc/self/smaps").unwrap();
    let mappings = parse(&bytes).unwrap();
    assert!(mappings.iter().any(|mapping| mapping.name == b"[stack]"));
    assert!(mappings.iter().all(|mapping| mapping.usage.is_some()));
    assert_eq!(parse(&std::fs::read("/proc/self/maps").unwrap()).map(|maps| maps.is_empty()), Ok(false));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_damage_makes_it_panic(at in 0..SMAPS.len(), byte in any::<u8>()) {
        let mut bytes = SMAPS.as_bytes().to_vec();
        bytes[at] = byte;
        if let Ok(mappings) = parse(&bytes) {
            prop_assert!(mappings.iter().all(|mapping| mapping.start < mapping.end));
        }
    }
}
