//! Any lines in a file of a just-in-time compiler: an address is named by the last line that covers it.
//!
//! `cargo +nightly fuzz run perf_map`
#![no_main]

use faultless_records::perf_map::PerfMap;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: Vec<(u8, u8, bool)>| {
    let mut text = String::new();
    for (number, (start, length, is_nonsense)) in lines.iter().enumerate() {
        let line =
            if *is_nonsense { "7f00 x\n".to_owned() } else { format!("{start:x} {length:x} f{number}\n") };
        text.push_str(&line);
    }
    let map = PerfMap::parse(&text);
    for address in 0..0x200_u64 {
        let covers = |(start, length, is_nonsense): &(u8, u8, bool)| {
            let start = u64::from(*start);
            !is_nonsense && (start..start + u64::from(*length)).contains(&address)
        };
        let last = lines.iter().rposition(covers).map(|number| format!("f{number}"));
        assert_eq!(map.function(address), last.as_deref(), "{address:#x}");
    }
});
