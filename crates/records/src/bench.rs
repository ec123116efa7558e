//! A benchmark campaign: which programs ran under which allocators, and what each run used.
//!
//! This is also the form in which campaigns are saved (`docs/json.md`): raw samples, from which every figure that is
//! printed can be computed again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::pagemap::PAGE_BYTES;
use crate::saved_form::newer;

/// Version of the saved form; a reader refuses newer ones.
pub const SCHEMA: u32 = 1;

/// One campaign with all its runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    /// [`SCHEMA`] of the tool that wrote it.
    pub schema: u32,
    /// Version of the tool that ran it.
    pub tool_version: String,
    /// When it began, in seconds since 1970-01-01 UTC.
    pub started_unix_s: u64,
    /// Where it ran.
    pub machine: Machine,
    /// The allocators compared, in the order of the table.
    pub contenders: Vec<Contender>,
    /// Index of the contender that the others are compared with.
    pub reference: usize,
    /// The words of the user's own command, where that was run: of the only cell of [`Suite::Command`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What the random forms of the suite `seeds` drew their sizes and pauses from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// What was run under each of them, in the order of the table.
    pub cells: Vec<Cell>,
    /// Every run, in the order in which they happened.
    pub samples: Vec<Sample>,
    /// System calls, where they were counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system_calls: Vec<SystemCalls>,
}

/// System calls of one contender in one cell, from a run of their own: counting slows it many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCalls {
    /// Index into [`Campaign::cells`].
    pub cell: usize,
    /// Index into [`Campaign::contenders`].
    pub contender: usize,
    /// Calls of all its processes, from exec to the end.
    pub calls: u64,
}

/// What is known of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor as `/proc/cpuinfo` gives it.
    pub processor: String,
    /// CPUs that the process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    /// Version of the C library, such as `glibc 2.36`.
    pub libc: String,
    /// The kernel's setting of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: String,
    /// Bytes of a page; 0 where it was not noted, which is taken for 4 KiB.
    #[serde(default)]
    pub page_bytes: u64,
}

impl Machine {
    /// Bytes of a page, noted or not.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        if self.page_bytes == 0 { PAGE_BYTES } else { self.page_bytes }
    }
}

/// One allocator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contender {
    /// Name in tables.
    pub name: String,
    /// File name of the library that was preloaded; none for the C library's own.
    pub library: Option<String>,
    /// Variables set for it alone, as `NAME=VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
}

/// A family of workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// The two programs of the article "A Comparison of Memory Allocators in Multiprocessors" (2003).
    Sun,
    /// The programs that allocator papers have used since.
    Classic,
    /// Real programs.
    Programs,
    /// Many threads, most of which do nothing.
    Threads,
    /// Programs of which everything is drawn from a number.
    Drawn,
    /// The cases of the documents that this allocator was made for, each with a criterion of its own.
    Seeds,
    /// A command of the user's own.
    Command,
}

impl Suite {
    /// All, in the order of the table.
    pub const ALL: [Self; 7] =
        [Self::Sun, Self::Classic, Self::Programs, Self::Threads, Self::Drawn, Self::Seeds, Self::Command];

    /// Whether it holds programs of the tool's, which are asked for by its name.
    #[must_use]
    pub fn has_programs(self) -> bool {
        self != Self::Command
    }

    /// Name on the command line and in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sun => "sun",
            Self::Classic => "classic",
            Self::Programs => "programs",
            Self::Threads => "threads",
            Self::Drawn => "drawn",
            Self::Seeds => "seeds",
            Self::Command => "command",
        }
    }

    /// Whether its programs, or forms of them, are drawn from a seed.
    #[must_use]
    pub fn takes_a_seed(self) -> bool {
        matches!(self, Self::Drawn | Self::Seeds)
    }
}

/// Size of a workload's problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Some tenths of a second.
    Small,
    /// About four times the work on eight times the memory.
    Large,
}

impl Size {
    /// Name on the command line, in tables, and as the workload's argument.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

/// One thing that every contender runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Its family.
    pub suite: Suite,
    /// Its name.
    pub workload: String,
    /// Its size; none for real programs.
    pub size: Option<Size>,
    /// Its number of threads; none for real programs.
    pub threads: Option<u32>,
    /// Its form, where it has several: the suite `seeds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Index into [`Campaign::cells`].
    pub cell: usize,
    /// Index into [`Campaign::contenders`].
    pub contender: usize,
    /// Round, from 0: runs of one cell in one round lie close together in time.
    pub round: u32,
    /// What it used; none when it failed.
    pub figures: Option<Figures>,
    /// Why it has no figures.
    pub failure: Option<String>,
    /// Part of all CPU time that other processes, or other guests of the host, took meanwhile, from 0 to 1.
    pub foreign_cpu: f64,
    /// What the program reported beyond [`Figures`], by name; units are in the names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub marks: BTreeMap<String, f64>,
}

/// What one run used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Wall time in s: of the measured part where the workload reports it, else of the whole process.
    pub elapsed_s: f64,
    /// Processor time in the program, in s.
    pub user_s: f64,
    /// Processor time in the kernel, in s.
    pub system_s: f64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Largest resident set, in bytes: all pages, anonymous ones too.
    pub peak_rss_bytes: u64,
    /// Resident set before the workload allocated anything.
    pub start_rss_bytes: Option<u64>,
    /// Resident set when the workload had freed everything (`threads`: while its threads sleep).
    pub end_rss_bytes: Option<u64>,
    /// Resident set after the idle time that followed.
    pub idle_rss_bytes: Option<u64>,
    /// Most bytes that the workload had asked for and not yet freed.
    pub live_peak_bytes: Option<u64>,
    /// Mappings at the end.
    pub mappings: Option<u64>,
    /// Pairs of malloc and free.
    pub operations: Option<u64>,
}

impl Figures {
    /// User and system time, in s.
    #[must_use]
    pub fn processor_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// Peak RSS over live bytes at peak: 1 would be a program without any other memory and an allocator without waste.
    #[must_use]
    pub fn memory_per_live(&self) -> Option<f64> {
        let live = self.live_peak_bytes.filter(|bytes| *bytes > 0)?;
        Some(self.peak_rss_bytes as f64 / live as f64)
    }
}

impl Campaign {
    /// The figures of one contender in one cell, with their rounds.
    pub fn runs(&self, cell: usize, contender: usize) -> impl Iterator<Item = (u32, &Figures)> {
        self.samples
            .iter()
            .filter(move |sample| sample.cell == cell && sample.contender == contender)
            .filter_map(|sample| Some((sample.round, sample.figures.as_ref()?)))
    }

    /// How often every cell was run.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.samples.iter().map(|sample| sample.round.saturating_add(1)).max().unwrap_or(0)
    }

    /// The system calls of one contender in one cell.
    #[must_use]
    pub fn calls(&self, cell: usize, contender: usize) -> Option<u64> {
        let found = self.system_calls.iter().find(|calls| calls.cell == cell && calls.contender == contender);
        found.map(|calls| calls.calls)
    }

    /// Whether its indices point to something and its figures are amounts, so that nothing that uses them can fail.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn check(&self) -> Result<(), String> {
        if self.schema > SCHEMA {
            return Err(newer(&format!("version {} of the format", self.schema)));
        }
        if self.reference >= self.contenders.len() {
            return Err(format!(
                "its reference is contender {} of {}",
                self.reference,
                self.contenders.len()
            ));
        }
        let is_lost =
            |sample: &&Sample| sample.cell >= self.cells.len() || sample.contender >= self.contenders.len();
        if let Some(sample) = self.samples.iter().find(is_lost) {
            return Err(format!("a sample names cell {} and contender {}", sample.cell, sample.contender));
        }
        // Each round has samples, and tables have a place for each round.
        let is_lost = |sample: &&Sample| sample.round as usize >= self.samples.len();
        if let Some(sample) = self.samples.iter().find(is_lost) {
            return Err(format!(
                "a sample is of round {} where all are {}",
                sample.round,
                self.samples.len()
            ));
        }
        // Tables have a place for each round of each contender in each cell, and whole rounds are kept.
        let places = (self.rounds().max(1) as usize)
            .saturating_mul(self.cells.len())
            .saturating_mul(self.contenders.len());
        if places > LEAST_PLACES.max(self.samples.len().saturating_mul(PLACES_A_SAMPLE)) {
            return Err(format!("it has {} samples for {places} places", self.samples.len()));
        }
        if !self.samples.iter().flat_map(amounts).all(is_amount) {
            return Err("a sample has a time, share or mark that no run has".into());
        }
        let is_lost =
            |calls: &&SystemCalls| calls.cell >= self.cells.len() || calls.contender >= self.contenders.len();
        match self.system_calls.iter().find(is_lost) {
            Some(calls) => {
                Err(format!("system calls name cell {} and contender {}", calls.cell, calls.contender))
            }
            None => Ok(()),
        }
    }
}

/// So many places for samples take no room that matters.
const LEAST_PLACES: usize = 1 << 20;

/// Where most are empty they are not of one campaign.
const PLACES_A_SAMPLE: usize = 16;

/// Larger than any time in s, share or mark of a run, and far from where sums and ratios are no numbers any more.
const LARGEST_AMOUNT: f64 = 1e18;

/// The figures that a file could give any value; those in whole numbers have bounds of their own.
fn amounts(sample: &Sample) -> impl Iterator<Item = f64> {
    let times =
        sample.figures.iter().flat_map(|figures| [figures.elapsed_s, figures.user_s, figures.system_s]);
    times.chain([sample.foreign_cpu]).chain(sample.marks.values().copied())
}

fn is_amount(figure: f64) -> bool {
    figure.abs() <= LARGEST_AMOUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(sample: &Sample) -> Campaign {
        let machine = Machine { cpus: 1, memory_bytes: 1, ..Machine::default() };
        Campaign {
            schema: SCHEMA,
            machine,
            contenders: vec![Contender { name: "libc".into(), library: None, settings: Vec::new() }],
            cells: vec![Cell {
                suite: Suite::Classic,
                workload: "larson".into(),
                size: None,
                threads: None,
                variant: None,
            }],
            samples: vec![sample.clone(), Sample { round: 1, ..sample.clone() }],
            ..Campaign::default()
        }
    }

    fn sample() -> Sample {
        Sample {
            cell: 0,
            contender: 0,
            round: 0,
            figures: Some(Figures { user_s: 1.5, ..Figures::default() }),
            failure: None,
            foreign_cpu: 0.1,
            marks: BTreeMap::from([("pause_us".into(), -1.0)]),
        }
    }

    #[test]
    fn figures_and_rounds_that_no_campaign_has_are_refused() {
        let sound = sample();
        assert_eq!(campaign(&sound).check(), Ok(()));
        for figure in [1e308, f64::INFINITY, f64::NAN, -1e300] {
            let figures = Some(Figures { user_s: figure, ..Figures::default() });
            let refused = campaign(&Sample { figures, ..sound.clone() }).check().unwrap_err();
            assert!(refused.contains("that no run has"), "{refused}");
            assert!(campaign(&Sample { foreign_cpu: figure, ..sound.clone() }).check().is_err());
            let marks = BTreeMap::from([("pause_us".into(), figure)]);
            assert!(campaign(&Sample { marks, ..sound.clone() }).check().is_err());
        }
        for (cell, contender) in [(1, 0), (0, 1)] {
            let refused = campaign(&Sample { cell, contender, ..sound.clone() }).check().unwrap_err();
            assert_eq!(refused, format!("a sample names cell {cell} and contender {contender}"));
        }
        let refused = campaign(&Sample { round: 200_000_000, ..sound }).check().unwrap_err();
        assert_eq!(refused, "a sample is of round 200000000 where all are 2");
    }

    #[test]
    fn a_campaign_with_far_more_places_than_samples_is_refused() {
        let none = Campaign::default();
        let cells = vec![Cell { suite: Suite::Command, ..campaign(&sample()).cells[0].clone() }; 2000];
        let contenders = vec![campaign(&sample()).contenders[0].clone(); 600];
        let wide = Campaign { cells, contenders, ..none };
        assert_eq!(wide.check().unwrap_err(), "it has 0 samples for 1200000 places");
        let samples = vec![sample(); 75_000];
        assert_eq!(Campaign { samples, ..wide }.check(), Ok(()));
    }
}
