//! Programs whose bytes are anything: what is read of them is an answer or a reason, never a panic or an endless search.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use faultless_records::perf_record::{FileIdentity, Registers, Sample};

use crate::exported;
use crate::module::Module;
use crate::modules::{Found, Modules};
use crate::unwinding::{StackUnwinder, UnwindCache};

const UNKNOWN: FileIdentity = FileIdentity::Inode { device: (0, 0), inode: 0 };

/// Damaged copies that are tried.
const COPIES: u64 = 400;

/// A small program with debug information, functions and unwinding tables; `g` is named by the scopes that it stands in.
fn program(place: &Path) -> Vec<u8> {
    let (source, program) = (place.join("a.cc"), place.join("a"));
    let text = "static inline int twice(int a) { return a * 2; }\nnamespace { struct Row { __attribute__((noinline)) int g(int a) { return twice(a) + 1; } }; }\nint main(int n, char **v) { return Row().g(n); }\n";
    fs::write(&source, text).unwrap();
    let status = Command::new("c++").args(["-g", "-O1", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(status.success());
    fs::read(program).unwrap()
}

/// Asks everything of a file that is asked of programs; whether there was an answer.
fn ask(path: &Path) -> bool {
    let open = || File::open(path).unwrap();
    let _ = exported::offsets(&open(), &["main", "malloc"]);
    let Ok(module) = Module::read(open()) else { return false };
    let mut modules = Modules::default();
    let found = || Ok(Found { file: open(), roots: Vec::new() });
    let place = modules.place("a", &UNKNOWN, found);
    let (mut unwinder, mut cache) = (StackUnwinder::default(), UnwindCache::default());
    unwinder.add(0x40_0000..0x50_0000, 0, &module);
    for offset in (0x1000..0x1400).step_by(64) {
        let address = module.code_address(offset).unwrap_or(offset);
        let _ = modules.frames(place, address);
        let registers = Registers { ip: 0x40_0000 + offset, sp: 0x7fff_0000, fp: 0x7fff_0040, lr: 0 };
        let stack = [0x40_1100_u64, 0x7fff_0080, u64::MAX, 0].map(u64::to_le_bytes).concat().repeat(16);
        let sample = Sample { registers: Some(registers), stack, ..Sample::default() };
        let _ = unwinder.chain(&sample, &mut cache);
    }
    true
}

/// Numbers as they come from a linear congruence: the same at each run.
fn numbers() -> impl FnMut(usize) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

#[test]
fn a_damaged_program_is_an_answer_or_a_reason() {
    let place = std::env::temp_dir().join(format!("faultless-symbols-damaged-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    let whole = program(&place);
    let file = place.join("damaged");
    let mut number = numbers();
    assert!(ask(&place.join("a")));
    let headers = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    let mut answers = 0;
    for copy in 0..COPIES {
        let mut bytes = whole.clone();
        for _ in 0..=number(8) {
            // The file's own header, the sections' headers behind all, and whatever lies between.
            let at = match number(4) {
                0 => number(1024),
                1 => headers + number(bytes.len() - headers),
                _ => number(bytes.len()),
            };
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff, number(256) as u8][number(6)];
        }
        if copy % 8 == 0 {
            bytes.truncate(number(whole.len()));
        }
        fs::write(&file, bytes).unwrap();
        answers += u64::from(ask(&file));
    }
    assert!((1..COPIES).contains(&answers), "{answers} of {COPIES} copies are read");
    fs::remove_dir_all(&place).unwrap();
}
