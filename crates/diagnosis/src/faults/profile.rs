//! Faults by function and by kind of memory.

use std::collections::{HashMap, HashSet};
use std::ops::AddAssign;

use faultless_records::fault_recording::FaultRecording;

use super::blame::blame;
use super::place::Kind;
use super::weight::{Weights, steps_with_few};

/// Name of what has no call chain.
pub const NOBODY: &str = "[no call chain]";

/// Name of what the kernel does for a program before its first instruction.
const EXECVE: &str = "[the kernel starts a program]";

/// Name of the faults that no sample stands for.
pub const NOT_LOOKED_AT: &str = "[not looked at]";

/// Numbers of faults; sampled ones are estimates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Amount {
    /// All.
    pub faults: f64,
    /// Of these, served with I/O.
    pub major: f64,
    /// Of these, inside system calls.
    pub in_kernel: f64,
    /// Of these, known to have brought a huge page.
    pub huge: f64,
}

impl Amount {
    fn of(faults: f64, is_major: bool, in_kernel: bool, is_huge: bool) -> Self {
        let when = |is: bool| if is { faults } else { 0.0 };
        Self { faults, major: when(is_major), in_kernel: when(in_kernel), huge: when(is_huge) }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.faults += other.faults;
        self.major += other.major;
        self.in_kernel += other.in_kernel;
        self.huge += other.huge;
    }
}

/// A function and the faults it is to be named for.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Name, or module and offset.
    pub name: String,
    /// File name of its module.
    pub module: Option<String>,
    /// Its faults.
    pub amount: Amount,
    /// Of these, what few samples of a coarse step stand for.
    pub known_by_few: f64,
    /// Source file and line with the faults there, most first.
    pub lines: Vec<((String, u32), f64)>,
    /// What it called that touched the memory, most first; nothing where it did that itself.
    pub through: Vec<(String, f64)>,
    /// Kinds of memory, most first.
    pub kinds: Vec<(Kind, f64)>,
}

/// What a recording says.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// All faults.
    pub all: Amount,
    /// Functions, most faults first.
    pub functions: Vec<Function>,
    /// Kinds of memory, most faults first.
    pub kinds: Vec<(Kind, Amount)>,
    /// Processes (name and number), most faults first.
    pub processes: Vec<(String, i32, f64)>,
}

/// The processes of one name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Program<'profile> {
    /// The name.
    pub name: &'profile str,
    /// How many have it.
    pub processes: u64,
    /// Their faults.
    pub faults: f64,
    /// The number of the one with most, and its faults.
    pub first: (i32, f64),
}

/// What is known of one function on the way.
#[derive(Default)]
struct Gathered {
    amount: Amount,
    known_by_few: f64,
    lines: HashMap<(String, u32), f64>,
    through: HashMap<String, f64>,
    kinds: HashMap<Kind, f64>,
}

impl Gathered {
    fn into_function(self, (name, module): (String, Option<String>)) -> Function {
        Function {
            name,
            module,
            amount: self.amount,
            known_by_few: self.known_by_few,
            lines: most_first(self.lines),
            through: most_first(self.through),
            kinds: most_first(self.kinds),
        }
    }
}

/// The sums on the way.
#[derive(Default)]
struct Sums {
    all: Amount,
    functions: HashMap<(String, Option<String>), Gathered>,
    kinds: HashMap<Kind, Amount>,
}

impl Sums {
    /// Adds faults to all, to their kind and to their function, which is returned.
    fn add(&mut self, function: (String, Option<String>), kind: Kind, amount: Amount) -> &mut Gathered {
        self.all += amount;
        *self.kinds.entry(kind.clone()).or_default() += amount;
        let gathered = self.functions.entry(function).or_default();
        gathered.amount += amount;
        *gathered.kinds.entry(kind).or_default() += amount.faults;
        gathered
    }
}

impl Profile {
    /// The profile of a recording whose indices were checked.
    #[must_use]
    pub fn of(recording: &FaultRecording) -> Self {
        let weights = Weights::of(recording);
        let has_few = steps_with_few(recording);
        let tree = &recording.tree;
        let programs: HashSet<&str> = tree.modules.iter().map(|module| module.path.as_str()).collect();
        let mut sums = Sums::default();
        let mut processes: HashMap<usize, f64> = HashMap::new();
        for faults in &recording.faults {
            let number = weights.faults(faults);
            *processes.entry(faults.process).or_default() += number;
            let place = recording.places.get(faults.place);
            let kind = place.map_or(Kind::Unknown, |place| Kind::of(place, |path| programs.contains(path)));
            let blame = blame(tree, faults.call);
            let nobody = if faults.in_kernel { EXECVE } else { NOBODY };
            let function = blame.map_or((nobody.to_owned(), None), |blame| {
                (tree.name(blame.culprit), tree.module_name(blame.culprit).map(str::to_owned))
            });
            let is_huge = faults.is_huge == Some(true);
            let amount = Amount::of(number, faults.is_major, faults.in_kernel, is_huge);
            let gathered = sums.add(function, kind, amount);
            if has_few.get(faults.step) == Some(&true) {
                gathered.known_by_few += number;
            }
            let Some(blame) = blame else { continue };
            if let (Some(file), Some(line)) = (&blame.culprit.file, blame.culprit.line) {
                *gathered.lines.entry((file.clone(), line)).or_default() += number;
            }
            if let Some(servant) = blame.servant {
                *gathered.through.entry(tree.name(servant)).or_default() += number;
            }
        }
        let rest = weights.not_looked_at();
        for (number, is_major) in [(rest.minor, false), (rest.major, true)] {
            if number > 0.0 {
                let amount = Amount::of(number, is_major, false, false);
                sums.add((NOT_LOOKED_AT.to_owned(), None), Kind::Unknown, amount);
            }
        }
        let functions = sums.functions.into_iter().map(|(key, gathered)| gathered.into_function(key));
        let mut functions: Vec<Function> = functions.collect();
        functions
            .sort_by(|a, b| b.amount.faults.total_cmp(&a.amount.faults).then_with(|| a.name.cmp(&b.name)));
        let mut kinds: Vec<(Kind, Amount)> = sums.kinds.into_iter().collect();
        kinds.sort_by(|a, b| b.1.faults.total_cmp(&a.1.faults).then_with(|| a.0.cmp(&b.0)));
        let named = most_first(processes).into_iter().filter_map(|(place, number)| {
            let process = recording.processes.get(place)?;
            Some((process.name.clone(), process.pid, number))
        });
        Self { all: sums.all, functions, kinds, processes: named.collect() }
    }

    /// The processes by name, most faults first.
    #[must_use]
    pub fn programs(&self) -> Vec<Program<'_>> {
        let mut programs: HashMap<&str, Program<'_>> = HashMap::new();
        for (name, pid, faults) in &self.processes {
            let fresh = Program { name, processes: 0, faults: 0.0, first: (*pid, *faults) };
            let program = programs.entry(name).or_insert(fresh);
            program.processes += 1;
            program.faults += faults;
        }
        let mut programs: Vec<Program<'_>> = programs.into_values().collect();
        programs.sort_by(|a, b| b.faults.total_cmp(&a.faults).then_with(|| a.name.cmp(b.name)));
        programs
    }

    /// Part of all faults, 0 to 1.
    #[must_use]
    pub fn share(&self, faults: f64) -> f64 {
        if self.all.faults > 0.0 { faults / self.all.faults } else { 0.0 }
    }
}

fn most_first<K: Ord>(map: HashMap<K, f64>) -> Vec<(K, f64)> {
    let mut list: Vec<(K, f64)> = map.into_iter().collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    list
}

#[cfg(test)]
mod tests {
    use super::super::weight::tests::recording;
    use super::*;

    #[test]
    fn the_guilty_function_comes_first_with_its_lines_and_kinds() {
        let profile = Profile::of(&recording());
        let first = &profile.functions[0];
        assert_eq!((first.name.as_str(), first.module.as_deref()), ("dgemm", Some("chem")));
        assert_eq!(first.amount.faults, 9091.0);
        assert!(profile.share(first.amount.faults) > 0.99);
        assert_eq!(first.lines, [(("/src/chem.c".into(), 50), 9091.0)]);
        assert_eq!(first.through, [("memcpy".into(), 9090.0)]);
        assert_eq!(first.kinds, [(Kind::Anonymous, 9091.0)]);
        assert_eq!(profile.kinds[1].0, Kind::BrkHeap);
        assert_eq!(profile.processes, [("chem".into(), 7, 9100.0)]);
        assert_eq!(profile.all.faults, 9100.0);
    }

    #[test]
    fn what_faults_were_is_summed_with_them() {
        let mut recording = recording();
        recording.faults[0].is_huge = Some(true);
        recording.faults[1].in_kernel = true;
        recording.faults[2].is_major = true;
        recording.method.steps[0].major_faults = 1;
        recording.method.steps[0].minor_faults = 9;
        (recording.counters.user.minor, recording.counters.user.major) = (9099, 1);
        let profile = Profile::of(&recording);
        let all = Amount { faults: 9100.0, major: 1.0, in_kernel: 9.0, huge: 9090.0 };
        assert_eq!(profile.all, all);
        assert_eq!(profile.functions[0].amount, Amount { in_kernel: 0.0, faults: 9091.0, ..all });
        assert_eq!((profile.share(4550.0), profile.functions[0].known_by_few), (0.5, 0.0));
        recording.faults[0].samples = 29;
        assert_eq!(Profile::of(&recording).functions[0].known_by_few, 9090.0);
    }

    #[test]
    fn faults_without_a_call_chain_are_not_lost() {
        let mut recording = recording();
        recording.faults[0].call = None;
        let profile = Profile::of(&recording);
        assert_eq!((profile.functions[0].name.as_str(), profile.all.faults), (NOBODY, 9100.0));
    }

    #[test]
    fn faults_that_no_sample_stands_for_are_in_the_sums() {
        let mut recording = recording();
        recording.faults.remove(0);
        let profile = Profile::of(&recording);
        let first = &profile.functions[0];
        assert_eq!((first.name.as_str(), first.amount.faults), (NOT_LOOKED_AT, 9090.0));
        assert_eq!(profile.all.faults, 9100.0);
        assert_eq!(profile.kinds.iter().map(|(_, amount)| amount.faults).sum::<f64>(), 9100.0);
    }

    #[test]
    fn an_empty_recording_has_an_empty_profile() {
        let mut recording = recording();
        recording.faults.clear();
        recording.counters.user.minor = 0;
        let profile = Profile::of(&recording);
        assert!(profile.functions.is_empty() && profile.share(1.0) == 0.0);
    }
}
