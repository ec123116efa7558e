//! A reader of the format, which the profiles of all instruments are tested with, and tests of the writer by it.

use std::io::Read as _;

use super::*;

/// A profile as a reader of the format finds it, with names in the place of numbers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadProfile {
    pub value_types: Vec<(String, String)>,
    pub shown: String,
    pub period: ((String, String), u64),
    pub samples: Vec<ReadSample>,
    pub modules: Vec<String>,
    /// For each module whether it has functions, files, lines, inlined frames.
    pub known: Vec<[bool; 4]>,
    /// Addresses of the locations of all samples, each as often as it stands there.
    pub addresses: Vec<Vec<u64>>,
    pub comment: String,
    pub time_ns: u64,
    pub duration_ns: u64,
}

/// Chain from the innermost function, values, label.
pub(crate) type ReadSample = (Vec<String>, Vec<u64>, Option<(String, String)>);

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

/// The fields of a message: number, and either a plain number or bytes.
#[derive(Debug, Clone)]
struct Fields(Vec<(u32, u64, Vec<u8>)>);

impl Fields {
    fn of(mut bytes: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = variable(&mut bytes);
            let number = variable(&mut bytes);
            let length = if key & 7 == 2 { number as usize } else { 0 };
            let (content, rest) = bytes.split_at(length);
            bytes = rest;
            fields.push(((key >> 3) as u32, number, content.to_vec()));
        }
        Self(fields)
    }

    /// 0 where it is missing.
    fn number(&self, field: u32) -> u64 {
        self.0.iter().find(|(number, ..)| *number == field).map_or(0, |(_, value, _)| *value)
    }

    fn messages(&self, field: u32) -> Vec<Self> {
        self.contents(field).map(|content| Self::of(&content)).collect()
    }

    fn contents(&self, field: u32) -> impl Iterator<Item = Vec<u8>> {
        self.0.iter().filter(move |(number, ..)| *number == field).map(|(.., content)| content.clone())
    }

    fn numbers(&self, field: u32) -> Vec<u64> {
        let content = self.contents(field).next().unwrap_or_default();
        let mut bytes = content.as_slice();
        let mut numbers = Vec::new();
        while !bytes.is_empty() {
            numbers.push(variable(&mut bytes));
        }
        numbers
    }
}

/// What a compressed profile says.
pub(crate) fn read(compressed: &[u8]) -> ReadProfile {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).unwrap();
    let profile = Fields::of(&bytes);
    let strings: Vec<String> =
        profile.contents(field::STRING_TABLE).map(|text| String::from_utf8(text).unwrap()).collect();
    assert_eq!(strings[0], "");
    let text = |of: &Fields, field: u32| strings[of.number(field) as usize].clone();
    let value_type = |of: &Fields| (text(of, 1), text(of, 2));
    let functions = profile.messages(field::FUNCTION);
    let locations = profile.messages(field::LOCATION);
    let by_id = |list: &[Fields], id: u64| list.iter().find(|of| of.number(1) == id).unwrap().clone();
    let names = |id: u64| {
        let lines = by_id(&locations, id).messages(4);
        lines.iter().map(|line| text(&by_id(&functions, line.number(1)), 2)).collect::<Vec<_>>()
    };
    let sample = |sample: Fields| {
        let label = sample.messages(3).first().map(|label| (text(label, 1), text(label, 2)));
        (sample.numbers(1).into_iter().flat_map(names).collect(), sample.numbers(2), label)
    };
    let known = |module: Fields| [7, 8, 9, 10].map(|field| module.number(field) == 1);
    let addresses = |sample: Fields| {
        let chain = sample.numbers(1).into_iter();
        chain.map(|id| by_id(&locations, id).number(3)).collect()
    };
    ReadProfile {
        known: profile.messages(field::MAPPING).into_iter().map(known).collect(),
        addresses: profile.messages(field::SAMPLE).into_iter().map(addresses).collect(),
        value_types: profile.messages(field::SAMPLE_TYPE).iter().map(value_type).collect(),
        shown: text(&profile, field::DEFAULT_SAMPLE_TYPE),
        period: (value_type(&profile.messages(field::PERIOD_TYPE)[0]), profile.number(field::PERIOD)),
        samples: profile.messages(field::SAMPLE).into_iter().map(sample).collect(),
        modules: profile.messages(field::MAPPING).iter().map(|module| text(module, 5)).collect(),
        comment: text(&profile, field::COMMENT),
        time_ns: profile.number(field::TIME_NANOS),
        duration_ns: profile.number(field::DURATION_NANOS),
    }
}

#[test]
fn a_reader_finds_what_was_written_and_no_sample_of_nothing() {
    let profile = Profile {
        values: &[ValueType { name: "calls", unit: "count" }, ValueType { name: "bytes", unit: "bytes" }],
        shown: 1,
        period: ValueType { name: "space", unit: "bytes" },
        modules: vec![Module { path: "/bin/chem", build_id: "", has_functions: true }],
        places: vec![Place::named("main", Some(0)), Place::named("load", None)],
        samples: vec![
            Sample {
                chain: vec![1, 0],
                values: vec![300, u64::MAX],
                label: Some(("operation", "unmap".into())),
            },
            Sample { chain: vec![0], values: vec![0, 0], label: None },
            Sample { chain: vec![0], values: vec![0, 7], label: None },
        ],
        subject: "chem 9".into(),
        started_unix_s: 2,
        duration_ns: 5,
    };
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    let expected = ReadProfile {
        value_types: vec![pair("calls", "count"), pair("bytes", "bytes")],
        shown: "bytes".into(),
        period: (pair("space", "bytes"), 1),
        samples: vec![
            (vec!["load".into(), "main".into()], vec![300, u64::MAX], Some(pair("operation", "unmap"))),
            (vec!["main".into()], vec![0, 7], None),
        ],
        modules: vec!["/bin/chem".into()],
        known: vec![[true, false, false, false]],
        addresses: vec![vec![0, 0], vec![0]],
        comment: "chem 9".into(),
        time_ns: 2_000_000_000,
        duration_ns: 5,
    };
    assert_eq!(read(&profile.compressed()), expected);
}

#[test]
fn large_numbers_take_several_bytes() {
    let mut message = Message::default();
    message.number(1, 300);
    assert_eq!(message.bytes, [8, 0xac, 2]);
}
