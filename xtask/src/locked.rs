//! `cargo xtask locked`: locked instructions per operation, ours and the peers', as an argument about more CPUs than this machine has.
//!
//! A locked instruction (a `lock` prefix, or `xchg` with memory) is what a lock or an atomic counter costs without contention, and
//! where CPUs wait for each other's lines with it. callgrind says how often each instruction ran (it runs one thread at a time, so none is
//! repeated because another thread was faster), `objdump` which are locked. Counted are those of the allocator, those of glibc's functions
//! for mutexes less the program's own, and for `libc` those of its malloc.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Arguments;
use crate::failure::{At, Failure, Result, usage, wrong};
use crate::library::{Profile, build};
use crate::sandbox::tool;
use crate::workspace::{TemporaryFolder, c_compiler, output, root, succeed};

/// Programs in which threads allocate for themselves, for each other, and in bulk.
const WORKLOADS: [&str; 9] =
    ["threadtest", "mtmalloctest", "larson", "xmalloc", "migrate", "sh8", "trees", "pareto", "size_loops"];
/// Functions of glibc that are its malloc.
const LIBC_MALLOC: [&str; 12] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "_int_malloc",
    "_int_free",
    "_int_realloc",
    "arena_get2",
    "tcache_init",
    "sysmalloc",
    "malloc_consolidate",
    "_int_free_merge_chunk",
];

/// An allocator; without a path libc's.
struct Allocator {
    name: String,
    path: Option<PathBuf>,
}

/// How often instructions of an object ran: by object, function and address.
type Counts = BTreeMap<(String, String), Vec<(u64, u64)>>;

/// Runs the task.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let threads: u32 = arguments.number("--threads", 8)?;
    let peers = arguments.option("--allocators")?;
    let mut workloads = arguments.words()?;
    if workloads.is_empty() {
        workloads = WORKLOADS.map(str::to_owned).to_vec();
    }
    // What is not there is known before minutes of counting.
    workloads.iter().try_for_each(|workload| source(workload).map(drop))?;
    tool("valgrind", "valgrind")?;
    tool("objdump", "binutils")?;
    let mut allocators = vec![
        Allocator { name: "libc".to_owned(), path: None },
        Allocator { name: "faultless".to_owned(), path: Some(build(Profile::Dist)?) },
    ];
    for peer in peers.iter().flat_map(|peers| peers.split(',')) {
        let Some((name, path)) = peer.split_once('=') else {
            return usage(format!("--allocators: {peer:?} is not NAME=PATH"));
        };
        let path = Path::new(path).canonicalize().at(Path::new(path))?;
        allocators.push(Allocator { name: name.to_owned(), path: Some(path) });
    }
    table(TemporaryFolder::new("locked")?.path(), &workloads, &allocators, threads)
}

/// Prints a row for each workload, made in the folder.
fn table(folder: &Path, workloads: &[String], allocators: &[Allocator], threads: u32) -> Result<()> {
    println!("locked instructions per 1,000 operations of the program, {threads} threads, small problem");
    println!("{:<14}{}", "", allocators.iter().map(|it| format!("{:>12}", it.name)).collect::<String>());
    let mut locked = Locked::default();
    for workload in workloads {
        let program = compile(folder, workload)?;
        let mut own_mutexes = 0;
        print!("{workload:<14}");
        for allocator in allocators {
            let (operations, counts) = match count(folder, &program, threads, allocator) {
                Ok(counted) => counted,
                // Not every allocator works under valgrind.
                Err(failure) if allocator.name != "faultless" => {
                    eprintln!("{workload} under {}: {failure}", allocator.name);
                    print!("{:>12}", "-");
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let mutexes = locked.sum(&counts, |object, function| {
                is_libc(object)
                    && (function.starts_with("pthread_mutex_") || function.starts_with("__lll_lock"))
            })?;
            let within = match &allocator.path {
                Some(path) => locked.sum(&counts, |object, _| Path::new(object) == path)?,
                None => {
                    own_mutexes = mutexes;
                    locked
                        .sum(&counts, |object, function| is_libc(object) && LIBC_MALLOC.contains(&function))?
                }
            };
            let sum = within + mutexes.saturating_sub(own_mutexes);
            print!("{:>12.1}", 1000.0 * sum as f64 / operations as f64);
            std::io::stdout().flush().at(Path::new("standard output"))?;
        }
        println!();
    }
    Ok(())
}

fn is_libc(object: &str) -> bool {
    Path::new(object).file_name().is_some_and(|name| name == "libc.so.6")
}

fn source(workload: &str) -> Result<PathBuf> {
    let source = root().join(format!("crates/workloads/bench/{workload}.c"));
    if source.is_file() {
        return Ok(source);
    }
    usage(format!("no workload is called {workload:?} ({} is not there)", source.display()))
}

fn compile(folder: &Path, workload: &str) -> Result<PathBuf> {
    let program = folder.join(workload);
    let words = ["-O2", "-std=gnu11", "-pthread", "-o"].map(Path::new);
    succeed(c_compiler().args(words).args([&program, &source(workload)?]).arg("-lm"))?;
    Ok(program)
}

/// Runs a program under callgrind. Returns the operations it counted, and what ran how often.
fn count(folder: &Path, program: &Path, threads: u32, allocator: &Allocator) -> Result<(u64, Counts)> {
    let profile = folder.join("callgrind.out");
    let mut command = Command::new("valgrind");
    command.args([
        "-q",
        "--tool=callgrind",
        "--dump-instr=yes",
        "--compress-pos=no",
        "--compress-strings=no",
    ]);
    command.arg(format!("--callgrind-out-file={}", profile.display()));
    command.arg(program).args([&threads.to_string(), "small", "0"]).env_remove("LD_PRELOAD");
    if let Some(path) = &allocator.path {
        command.env("LD_PRELOAD", path);
    }
    let line = output(&mut command)?;
    let operations = line.split_whitespace().find_map(|word| word.strip_prefix("operations=")?.parse().ok());
    let Some(operations) = operations.filter(|&operations| operations > 0) else {
        return wrong(format!("{}: no operations in {line:?}", program.display()));
    };
    let counts = parse(&fs::read_to_string(&profile).at(&profile)?);
    if counts.is_empty() {
        return wrong(format!("{}: callgrind counted nothing", program.display()));
    }
    if let Some(path) = allocator.path.as_ref().filter(|path| !ran_in(&counts, path)) {
        return wrong(format!("{}: nothing of {} ran", program.display(), path.display()));
    }
    Ok((operations, counts))
}

/// Whether something of the object ran: the loader passes over what it cannot preload.
fn ran_in(counts: &Counts, object: &Path) -> bool {
    counts.keys().any(|(ran, _)| Path::new(ran) == object)
}

/// Reads callgrind's output with addresses and without abbreviations.
fn parse(text: &str) -> Counts {
    let mut counts = Counts::new();
    let (mut object, mut function) = (String::new(), String::new());
    let mut is_call = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            name.clone_into(&mut object);
        } else if let Some(name) = line.strip_prefix("fn=") {
            // Recursion is shown as a function of its own.
            name.split('\'').next().unwrap_or(name).clone_into(&mut function);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some(words) = line.strip_prefix("0x") {
            // What follows a call is the cost of what was called.
            if !std::mem::take(&mut is_call) {
                let mut words = words.split_whitespace();
                let address = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
                let count = words.nth(1).and_then(|word| word.parse().ok());
                if let (Some(address), Some(count)) = (address, count) {
                    counts.entry((object.clone(), function.clone())).or_default().push((address, count));
                }
            }
        }
    }
    counts
}

/// The locked instructions of each object seen so far.
#[derive(Default)]
struct Locked(HashMap<String, HashSet<u64>>);

impl Locked {
    /// How often locked instructions ran in what `is_meant`.
    fn sum(&mut self, counts: &Counts, is_meant: impl Fn(&str, &str) -> bool) -> Result<u64> {
        let mut sum = 0;
        for ((object, _), lines) in counts.iter().filter(|((object, function), _)| is_meant(object, function))
        {
            let locked = self.of(object)?;
            let ran = lines.iter().filter(|(address, _)| locked.contains(address));
            sum += ran.map(|(_, count)| count).sum::<u64>();
        }
        Ok(sum)
    }

    fn of(&mut self, object: &str) -> Result<&HashSet<u64>> {
        if !self.0.contains_key(object) {
            let mut command = Command::new("objdump");
            let listing = output(command.args(["-d", "--no-show-raw-insn", object]))?;
            let addresses: HashSet<u64> = listing.lines().filter_map(locked_address).collect();
            if addresses.is_empty() {
                return wrong(format!("objdump finds no locked instruction in {object}"));
            }
            self.0.insert(object.to_owned(), addresses);
        }
        self.0.get(object).ok_or_else(|| Failure::Wrong(object.to_owned()))
    }
}

/// The address of an instruction in `objdump`'s listing, if it is locked.
fn locked_address(line: &str) -> Option<u64> {
    let (address, instruction) = line.split_once(":\t")?;
    let is_locked =
        instruction.starts_with("lock ") || (instruction.starts_with("xchg") && instruction.contains('('));
    is_locked.then(|| u64::from_str_radix(address.trim(), 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_object_and_function_and_calls_are_not_counted_twice() {
        let text = "events: Ir\nob=/a.so\nfl=x.c\nfn=malloc\n0x10 1 5\n0x14 1 7\ncob=/b.so\ncfn=free\ncalls=5 0x99 3\n\
                    0x18 1 900\n0x1c 2 1\nob=/b.so\nfn=free'2\n0x99 3 4\n";
        let counts = parse(text);
        let of = |object: &str, function: &str| counts[&(object.to_owned(), function.to_owned())].clone();
        assert_eq!(of("/a.so", "malloc"), [(0x10, 5), (0x14, 7), (0x1c, 1)]);
        assert_eq!(of("/b.so", "free"), [(0x99, 4)]);
        assert!(ran_in(&counts, Path::new("/b.so")) && !ran_in(&counts, Path::new("/c.so")));
    }

    #[test]
    fn locked_instructions_are_those_with_the_prefix_and_exchanges_with_memory() {
        assert_eq!(locked_address("    1f0a:\tlock cmpxchg %ecx,(%rdi)"), Some(0x1f0a));
        assert_eq!(locked_address("    1f10:\txchg   %eax,0x8(%rbx)"), Some(0x1f10));
        for other in ["    1f12:\txchg   %ax,%ax", "    1f14:\tmov    %eax,(%rbx)", "0000 <lock >:", ""] {
            assert_eq!(locked_address(other), None, "{other}");
        }
    }
}
