//! The machine that measurements are taken on, and how busy others keep it.

use std::fs;
use std::time::Duration;

use faultless_records::bench::Machine;

use crate::{clock, process_files};

/// What is known of this machine; parts that cannot be read are empty or 0.
#[must_use]
pub fn machine(libc: String) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Machine {
        processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(1, |number| number.get() as u32),
        memory_bytes: field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok())
            .map_or(0, |kibibytes| kibibytes * 1024),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        libc,
        huge_pages: huge_pages(),
        page_bytes: process_files::page_bytes(),
    }
}

/// The kernel's setting of transparent huge pages; empty where it has none.
#[must_use]
pub fn huge_pages() -> String {
    chosen(&fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default())
}

/// The time of so many clock ticks, in which `/proc` counts CPU time.
#[must_use]
pub fn duration_of_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / clock::ticks_per_s())
}

/// Value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The word in brackets of `always [madvise] never`.
fn chosen(text: &str) -> String {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(word, _)| word).to_owned()
}

/// Nodes with memory of their own; 1 where that cannot be read.
#[must_use]
pub fn numa_nodes() -> usize {
    fs::read_to_string("/sys/devices/system/node/has_memory").map_or(1, |list| list_length(&list)).max(1)
}

/// Mappings that a process may have (`vm.max_map_count`); none where that cannot be read.
#[must_use]
pub fn most_mappings() -> Option<u64> {
    fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()
}

/// How many processes the kernel has killed for want of memory, of the machine's or of a control group's; none where it does not say.
#[must_use]
pub fn killed_for_memory() -> Option<u64> {
    parse_killed(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn parse_killed(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}

/// How many numbers a list such as `0-1,4` names.
fn list_length(list: &str) -> usize {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let length = |part: &str| match part.split_once('-') {
        Some((from, to)) => Some((number(to)? + 1).saturating_sub(number(from)?)),
        None => number(part).map(|_| 1),
    };
    list.split(',').filter_map(length).sum()
}

/// CPU time of the whole machine up to now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuTimes {
    /// Time in which a CPU did something, or another guest of the host had it, in s.
    pub busy_s: f64,
    /// All of it, in s.
    pub total_s: f64,
    /// What this process had of it, in s: it reads what its commands print.
    pub own_s: f64,
}

impl CpuTimes {
    /// Reads `/proc/stat`; none where it cannot be read.
    #[must_use]
    pub fn now() -> Option<Self> {
        let times = parse_stat(&fs::read_to_string("/proc/stat").ok()?, clock::ticks_per_s())?;
        Some(Self { own_s: clock::own_processor_time().as_secs_f64(), ..times })
    }

    /// Part of the CPU time since `earlier` that neither was idle nor went into a command, so many seconds, nor into this process.
    #[must_use]
    pub fn foreign_since(&self, earlier: &Self, command_s: f64) -> f64 {
        let total_s = self.total_s - earlier.total_s;
        if total_s <= 0.0 {
            return 0.0;
        }
        let ours_s = command_s + self.own_s - earlier.own_s;
        ((self.busy_s - earlier.busy_s - ours_s) / total_s).clamp(0.0, 1.0)
    }
}

/// Source: proc_stat(5), the line `cpu`: user nice system idle iowait irq softirq steal guest guest_nice, where the guests
/// are counted in user and nice already.
fn parse_stat(text: &str, ticks_per_s: f64) -> Option<CpuTimes> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> =
        line.split_ascii_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
    let total: f64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(CpuTimes { busy_s: (total - idle) / ticks_per_s, total_s: total / ticks_per_s, own_s: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_counted() {
        assert_eq!(["0\n", "0-1\n", "0-1,4", "", "x"].map(list_length), [1, 2, 3, 0, 0]);
    }

    #[test]
    fn who_was_killed_for_memory_is_counted() {
        assert_eq!(parse_killed("pgfault 5\noom_kill 218\nnuma_hit 7\n"), Some(218));
        assert_eq!(parse_killed("pgfault 5\n"), None);
    }

    #[test]
    fn steal_counts_as_busy_and_waiting_does_not() {
        let times = parse_stat("cpu  100 0 50 800 40 0 5 5 7 0\ncpu0 1 2 3\n", 100.0).unwrap();
        assert_eq!(times, CpuTimes { busy_s: 1.6, total_s: 10.0, own_s: 0.0 });
    }

    #[test]
    fn what_others_used_is_what_we_did_not() {
        let earlier = CpuTimes { busy_s: 1.0, total_s: 10.0, own_s: 7.0 };
        let later = CpuTimes { busy_s: 3.0, total_s: 14.0, own_s: 7.0 };
        assert_eq!(later.foreign_since(&earlier, 1.0), 0.25);
        assert_eq!(later.foreign_since(&earlier, 5.0), 0.0);
        assert_eq!(earlier.foreign_since(&earlier, 0.0), 0.0);
        let reading = CpuTimes { own_s: 7.5, ..later };
        assert_eq!(reading.foreign_since(&earlier, 1.0), 0.125, "what this process used is not others'");
    }

    #[test]
    fn what_this_process_uses_is_counted_with_the_machines_time() {
        let before = CpuTimes::now().unwrap();
        let sum = (0..20_000_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        assert!(CpuTimes::now().unwrap().own_s > before.own_s, "{sum}");
    }

    #[test]
    fn this_machine_is_described() {
        let machine = machine("glibc 2.36".into());
        assert!(machine.cpus >= 1 && machine.memory_bytes > 0 && !machine.kernel.is_empty());
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
    }
}
