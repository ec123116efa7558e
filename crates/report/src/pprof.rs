//! A recording of page faults in the format of pprof, compressed as its tools expect.
//!
//! Source: github.com/google/pprof, proto/profile.proto. The few messages of it are written here: a generator and its run time
//! would be many times as long.

use std::collections::HashMap;
use std::io::Write as _;

use faultless_records::fault_recording::FaultRecording;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::faults_tree::KERNEL;
use faultless_diagnosis::faults::profile::{NOBODY, NOT_LOOKED_AT};
use faultless_diagnosis::faults::weight::Weights;

/// The profile: for each chain its faults, and the major ones among them.
#[must_use]
pub fn profile(recording: &FaultRecording) -> Vec<u8> {
    let bytes = Profile::of(recording);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(&bytes);
    encoder.finish().unwrap_or_default()
}

/// Fields of the message `Profile`.
mod field {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const MAPPING: u32 = 3;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING_TABLE: u32 = 6;
    pub const TIME_NANOS: u32 = 9;
    pub const DURATION_NANOS: u32 = 10;
    pub const PERIOD_TYPE: u32 = 11;
    pub const PERIOD: u32 = 12;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Numbers of strings in the table; number 0 is the empty one.
#[derive(Default)]
struct Strings {
    list: Vec<String>,
    places: HashMap<String, u64>,
}

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.places.get(text) {
            return *number;
        }
        self.list.push(text.to_owned());
        let number = self.list.len() as u64;
        self.places.insert(text.to_owned(), number);
        number
    }
}

struct Profile;

impl Profile {
    fn of(recording: &FaultRecording) -> Vec<u8> {
        let tree = &recording.tree;
        let weights = Weights::of(recording);
        let mut strings = Strings::default();
        let mut out = Message::default();
        for name in ["faults", "major_faults"] {
            out.message(field::SAMPLE_TYPE, &value_type(&mut strings, name));
        }
        // A location for each frame, and the last ones for what has none.
        let kernel = tree.frames.len() as u64 + 1;
        let [nobody, not_looked_at] = [kernel + 1, kernel + 2];
        let others = [KERNEL, NOBODY, NOT_LOOKED_AT];
        for faults in &recording.faults {
            let number = weights.faults(faults).round() as u64;
            let mut locations: Vec<u64> = Vec::new();
            if faults.in_kernel {
                locations.push(kernel);
            }
            let mut next = faults.call;
            while let Some(call) = next.and_then(|call| tree.calls.get(call)) {
                locations.push(call.frame as u64 + 1);
                next = call.parent;
            }
            if locations.is_empty() {
                locations.push(nobody);
            }
            out.sample(&locations, [number, if faults.is_major { number } else { 0 }]);
        }
        let rest = weights.not_looked_at();
        out.sample(&[not_looked_at], [rest.minor + rest.major, rest.major].map(|rest| rest.round() as u64));
        for (place, module) in tree.modules.iter().enumerate() {
            let mut mapping = Message::default();
            mapping.number(1, place as u64 + 1);
            mapping.number(5, strings.number(&module.path));
            mapping.number(6, strings.number(module.build_id.as_deref().unwrap_or_default()));
            for has in 7..=10 {
                // Names, files, lines and inlined frames are resolved: nothing is to be looked up again.
                mapping.number(has, 1);
            }
            out.message(field::MAPPING, &mapping);
        }
        let names = tree.frames.iter().map(|frame| {
            (tree.name(frame), frame.file.clone().unwrap_or_default(), frame.line, frame.module, frame.offset)
        });
        let others = others.map(|name| (name.to_owned(), String::new(), None, None, 0));
        for (place, (name, file, line, module, offset)) in names.chain(others).enumerate() {
            let id = place as u64 + 1;
            let mut function = Message::default();
            function.number(1, id);
            function.number(2, strings.number(&name));
            function.number(3, strings.number(&name));
            function.number(4, strings.number(&file));
            out.message(field::FUNCTION, &function);
            let mut in_line = Message::default();
            in_line.number(1, id);
            in_line.number(2, line.map_or(0, u64::from));
            let mut location = Message::default();
            location.number(1, id);
            location.number(2, module.map_or(0, |module| module as u64 + 1));
            location.number(3, offset);
            location.message(4, &in_line);
            out.message(field::LOCATION, &location);
        }
        out.number(field::TIME_NANOS, recording.started_unix_s.saturating_mul(1_000_000_000));
        out.number(field::DURATION_NANOS, recording.duration_ns);
        out.message(field::PERIOD_TYPE, &value_type(&mut strings, "faults"));
        out.number(field::PERIOD, 1);
        // Without it readers show the last type, and major faults are mostly none.
        out.number(field::DEFAULT_SAMPLE_TYPE, strings.number("faults"));
        out.bytes(field::STRING_TABLE, b"");
        for text in &strings.list {
            out.bytes(field::STRING_TABLE, text.as_bytes());
        }
        out.bytes
    }
}

fn value_type(strings: &mut Strings, name: &str) -> Message {
    let mut value = Message::default();
    value.number(1, strings.number(name));
    value.number(2, strings.number("count"));
    value
}

/// A message of protocol buffers while it is written.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn variable(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// 0 is what a missing number means.
    fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.variable(u64::from(field) << 3);
            self.variable(number);
        }
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.variable(u64::from(field) << 3 | 2);
        self.variable(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, message: &Self) {
        self.bytes(field, &message.bytes);
    }

    /// Faults and major ones of a chain, innermost call first; nothing where there are none.
    fn sample(&mut self, locations: &[u64], numbers: [u64; 2]) {
        if numbers[0] > 0 {
            let mut sample = Self::default();
            sample.numbers(1, locations);
            sample.numbers(2, &numbers);
            self.message(field::SAMPLE, &sample);
        }
    }

    fn numbers(&mut self, field: u32, numbers: &[u64]) {
        let mut packed = Self::default();
        for number in numbers {
            packed.variable(*number);
        }
        self.bytes(field, &packed.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults_tree::tests::recording;
    use std::io::Read as _;

    /// The fields of a message: number, and either a plain number or bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u32, u64, Vec<u8>)> {
        fn variable(bytes: &mut &[u8]) -> u64 {
            let mut number = 0;
            for shift in (0..).step_by(7) {
                let (byte, rest) = bytes.split_first().unwrap();
                *bytes = rest;
                number |= u64::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            number
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = variable(&mut bytes);
            let number = variable(&mut bytes);
            let length = if key & 7 == 2 { number as usize } else { 0 };
            let (content, rest) = bytes.split_at(length);
            bytes = rest;
            fields.push(((key >> 3) as u32, number, content.to_vec()));
        }
        fields
    }

    #[test]
    fn a_reader_of_the_format_finds_chains_with_their_faults() {
        let compressed = profile(&recording());
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(compressed.as_slice()).read_to_end(&mut bytes).unwrap();
        let fields = fields(&bytes);
        let all =
            |number: u32| fields.iter().filter(move |field| field.0 == number).map(|field| field.2.clone());
        let strings: Vec<String> =
            all(field::STRING_TABLE).map(|text| String::from_utf8(text).unwrap()).collect();
        assert_eq!(strings[0], "");
        let shown = fields.iter().find(|field| field.0 == super::field::DEFAULT_SAMPLE_TYPE).unwrap();
        assert_eq!(strings[shown.1 as usize], "faults");
        let first = all(field::SAMPLE).next().unwrap();
        let parts = super::tests::fields(&first);
        assert_eq!(parts[0].2, [2, 1], "dgemm, called by main");
        assert_eq!(parts[1].2, [95, 0]);
        let function = all(field::FUNCTION).nth(1).unwrap();
        let name = super::tests::fields(&function)[1].1;
        assert_eq!(strings[name as usize], "dgemm");
        let major = all(field::SAMPLE).nth(2).unwrap();
        let parts = super::tests::fields(&major);
        assert_eq!((parts[0].2.as_slice(), parts[1].2.as_slice()), ([4, 3, 1].as_slice(), [2, 2].as_slice()));
    }

    #[test]
    fn what_has_no_chain_and_what_was_lost_are_in_the_sums() {
        let mut recording = recording();
        recording.faults[0].call = None;
        recording.method.steps[0].minor_faults += 7;
        recording.counters.user.minor += 7;
        let bytes = Profile::of(&recording);
        let samples: Vec<Vec<u8>> = fields(&bytes)
            .into_iter()
            .filter(|field| field.0 == super::field::SAMPLE)
            .map(|field| fields(&field.2)[1].2.clone())
            .collect();
        assert_eq!(samples, [[95, 0], [3, 0], [2, 2], [7, 0]]);
    }

    #[test]
    fn large_numbers_take_several_bytes() {
        let mut message = Message::default();
        message.number(1, 300);
        assert_eq!(message.bytes, [8, 0xac, 2]);
    }
}
