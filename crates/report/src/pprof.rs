//! The format of pprof: what samples, places in code and modules are, and their bytes, compressed as its tools expect.
//!
//! Source: github.com/google/pprof, proto/profile.proto. The few messages of it are written here: a generator and its run time
//! would be many times as long.

use std::collections::HashMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Fields of the message `Profile`.
pub(crate) mod field {
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
    pub const COMMENT: u32 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// What a value counts, and in what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueType {
    pub name: &'static str,
    /// `count` or `bytes`.
    pub unit: &'static str,
}

/// All of a profile. Values stand for everything: readers scale nothing.
pub(crate) struct Profile<'text> {
    /// What the values of each sample are.
    pub values: &'static [ValueType],
    /// Which of them readers show first; without it they take the last.
    pub shown: usize,
    /// What a sample is taken of one in so many of; here of each.
    pub period: ValueType,
    pub modules: Vec<Module<'text>>,
    pub places: Vec<Place<'text>>,
    pub samples: Vec<Sample>,
    /// What was looked at.
    pub subject: String,
    /// 0 where that is not known.
    pub started_unix_s: u64,
    pub duration_ns: u64,
}

/// A program or library whose functions have their names already: nothing is to be looked up again.
pub(crate) struct Module<'text> {
    pub path: &'text str,
    pub build_id: &'text str,
}

/// A place in code.
pub(crate) struct Place<'text> {
    pub name: String,
    pub file: &'text str,
    pub line: u32,
    /// Index of its module.
    pub module: Option<usize>,
    pub offset: u64,
}

impl Place<'_> {
    /// A function of which only the name is known, or what stands for one.
    pub fn named(name: &str, module: Option<usize>) -> Self {
        Self { name: name.to_owned(), file: "", line: 0, module, offset: 0 }
    }
}

/// A call chain with its values.
pub(crate) struct Sample {
    /// Indices of places, the innermost first.
    pub chain: Vec<usize>,
    pub values: Vec<u64>,
    /// Name and text.
    pub label: Option<(&'static str, String)>,
}

impl Profile<'_> {
    /// The profile as a file.
    pub fn compressed(&self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Writing to memory does not fail.
        let _ = encoder.write_all(&self.bytes());
        encoder.finish().unwrap_or_default()
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut strings = Strings::default();
        let mut out = Message::default();
        for value in self.values {
            out.message(field::SAMPLE_TYPE, &value.message(&mut strings));
        }
        for sample in self.samples.iter().filter(|sample| sample.values.iter().any(|value| *value > 0)) {
            out.message(field::SAMPLE, &sample.message(&mut strings));
        }
        for (index, module) in self.modules.iter().enumerate() {
            out.message(field::MAPPING, &module.message(index, &mut strings));
        }
        for (index, place) in self.places.iter().enumerate() {
            out.message(field::FUNCTION, &place.function(index, &mut strings));
            out.message(field::LOCATION, &place.location(index));
        }
        out.number(field::TIME_NANOS, self.started_unix_s.saturating_mul(1_000_000_000));
        out.number(field::DURATION_NANOS, self.duration_ns);
        out.message(field::PERIOD_TYPE, &self.period.message(&mut strings));
        out.number(field::PERIOD, 1);
        if let Some(shown) = self.values.get(self.shown) {
            out.number(field::DEFAULT_SAMPLE_TYPE, strings.number(shown.name));
        }
        out.number(field::COMMENT, strings.number(&self.subject));
        out.bytes(field::STRING_TABLE, b"");
        for text in &strings.list {
            out.bytes(field::STRING_TABLE, text.as_bytes());
        }
        out.bytes
    }
}

/// Numbers of things count from 1: 0 is none.
fn id(index: usize) -> u64 {
    index as u64 + 1
}

impl ValueType {
    fn message(self, strings: &mut Strings) -> Message {
        let mut value = Message::default();
        value.number(1, strings.number(self.name));
        value.number(2, strings.number(self.unit));
        value
    }
}

impl Module<'_> {
    fn message(&self, index: usize, strings: &mut Strings) -> Message {
        let mut mapping = Message::default();
        mapping.number(1, id(index));
        mapping.number(5, strings.number(self.path));
        mapping.number(6, strings.number(self.build_id));
        for has in 7..=10 {
            // Functions, files, lines, inlined frames.
            mapping.number(has, 1);
        }
        mapping
    }
}

impl Place<'_> {
    fn function(&self, index: usize, strings: &mut Strings) -> Message {
        let mut function = Message::default();
        function.number(1, id(index));
        function.number(2, strings.number(&self.name));
        function.number(3, strings.number(&self.name));
        function.number(4, strings.number(self.file));
        function
    }

    fn location(&self, index: usize) -> Message {
        let mut line = Message::default();
        line.number(1, id(index));
        line.number(2, u64::from(self.line));
        let mut location = Message::default();
        location.number(1, id(index));
        location.number(2, self.module.map_or(0, id));
        location.number(3, self.offset);
        location.message(4, &line);
        location
    }
}

impl Sample {
    fn message(&self, strings: &mut Strings) -> Message {
        let mut sample = Message::default();
        sample.numbers(1, self.chain.iter().map(|place| id(*place)));
        sample.numbers(2, self.values.iter().copied());
        if let Some((name, text)) = &self.label {
            let mut label = Message::default();
            label.number(1, strings.number(name));
            label.number(2, strings.number(text));
            sample.message(3, &label);
        }
        sample
    }
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

    fn numbers(&mut self, field: u32, numbers: impl Iterator<Item = u64>) {
        let mut packed = Self::default();
        numbers.for_each(|number| packed.variable(number));
        self.bytes(field, &packed.bytes);
    }
}

#[cfg(test)]
pub(crate) mod tests;
