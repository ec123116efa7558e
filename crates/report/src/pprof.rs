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

/// A program or library.
pub(crate) struct Module<'text> {
    pub path: &'text str,
    pub build_id: &'text str,
    /// Functions have their names already: readers look nothing up again.
    pub has_functions: bool,
}

/// A place in code: one address, or what stands for one.
pub(crate) struct Place<'text> {
    /// The function there, at the end, and before it what was inlined into it, the innermost first.
    pub lines: Vec<Line<'text>>,
    /// Index of its module.
    pub module: Option<usize>,
    pub offset: u64,
}

/// A function at a place, and how far it has come there.
pub(crate) struct Line<'text> {
    pub function: String,
    pub file: &'text str,
    /// 0 where that is not known.
    pub number: u32,
}

impl Place<'_> {
    /// A function of which only the name is known, or what stands for one.
    pub fn named(name: &str, module: Option<usize>) -> Self {
        Self { lines: vec![Line { function: name.to_owned(), file: "", number: 0 }], module, offset: 0 }
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
            let places = self.places.iter().filter(|place| place.module == Some(index));
            out.message(field::MAPPING, &module.message(index, places, &mut strings));
        }
        // Each function once, whatever its places.
        let mut functions: HashMap<(&str, &str), u64> = HashMap::new();
        for (index, place) in self.places.iter().enumerate() {
            let mut location = place.location(index);
            for line in &place.lines {
                let function = functions.len() as u64 + 1;
                let function = *functions.entry((&line.function, line.file)).or_insert_with(|| {
                    out.message(field::FUNCTION, &line.function(function, &mut strings));
                    function
                });
                location.message(4, &line.message(function));
            }
            out.message(field::LOCATION, &location);
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
    fn message<'place>(
        &self,
        index: usize,
        places: impl Iterator<Item = &'place Place<'place>>,
        strings: &mut Strings,
    ) -> Message {
        let (mut has_files, mut has_lines, mut has_inlined) = (false, false, false);
        for place in places {
            has_files |= place.lines.iter().any(|line| !line.file.is_empty());
            has_lines |= place.lines.iter().any(|line| line.number != 0);
            has_inlined |= place.lines.len() > 1;
        }
        let mut mapping = Message::default();
        mapping.number(1, id(index));
        mapping.number(5, strings.number(self.path));
        mapping.number(6, strings.number(self.build_id));
        for (field, has) in (7..).zip([self.has_functions, has_files, has_lines, has_inlined]) {
            mapping.number(field, u64::from(has));
        }
        mapping
    }
}

impl Line<'_> {
    fn function(&self, id: u64, strings: &mut Strings) -> Message {
        let mut function = Message::default();
        function.number(1, id);
        function.number(2, strings.number(&self.function));
        function.number(3, strings.number(&self.function));
        function.number(4, strings.number(self.file));
        function
    }

    fn message(&self, function: u64) -> Message {
        let mut line = Message::default();
        line.number(1, function);
        line.number(2, u64::from(self.number));
        line
    }
}

impl Place<'_> {
    /// Without its lines.
    fn location(&self, index: usize) -> Message {
        let mut location = Message::default();
        location.number(1, id(index));
        location.number(2, self.module.map_or(0, id));
        location.number(3, self.offset);
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
