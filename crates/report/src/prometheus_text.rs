//! Figures of a fleet in Prometheus's text format, version 0.0.4: what it scrapes, and what node_exporter's textfile collector reads.
//!
//! Names and units follow Prometheus's rules: base units, `_total` for what only grows.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use faultless_diagnosis::fleet::{Counts, Fleet, Label, Sizes};
use faultless_records::recording::GroupSample;

/// Type of the content, for HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Looks into a process that take longer than its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Look {
    /// At what malloc holds.
    Heap,
    /// At what its mappings are.
    Map,
}

/// How often, and what came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Looks {
    /// All of them.
    pub times: u64,
    /// The time of all.
    pub took: Duration,
    /// Those that saw nothing, as where reading is not permitted, or nothing exact.
    pub failed: u64,
}

/// What the exporter says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Own {
    /// Processor time that it has used.
    pub processor: Duration,
    /// Looks of each kind.
    pub looks: BTreeMap<Look, Looks>,
    /// When a round of looks at all processes was over last, in s since 1970.
    pub last_round_s: Option<f64>,
}

/// Writes everything behind what stands on the page: one family of metrics after the other, so that it is in memory once.
pub fn write(page: &mut String, fleet: &Fleet, own: &Own) {
    sizes(page, fleet);
    counts(page, fleet);
    heaps(page, fleet);
    kinds(page, fleet);
    control_groups(page, fleet);
    exporter(page, own);
}

/// Metrics of one name, as their lines.
struct Family {
    name: &'static str,
    text: String,
    head_bytes: usize,
}

impl Family {
    fn new(name: &'static str, kind: &str, help: &str) -> Self {
        let text = format!("# HELP faultless_{name} {help}\n# TYPE faultless_{name} {kind}\n");
        Self { name, head_bytes: text.len(), text }
    }

    fn gauge(name: &'static str, help: &str) -> Self {
        Self::new(name, "gauge", help)
    }

    fn counter(name: &'static str, help: &str) -> Self {
        Self::new(name, "counter", help)
    }

    fn push(&mut self, labels: &[(&str, &str)], value: f64) {
        let text = &mut self.text;
        text.extend(["faultless_", self.name]);
        for (place, (label, value)) in labels.iter().enumerate() {
            text.extend([if place == 0 { "{" } else { "," }, label, "=\""]);
            push_escaped(text, value);
            text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        // A string takes everything.
        let _ = writeln!(text, "{end} {value}");
    }

    /// One metric with the labels of `of`, and others.
    fn of(&mut self, of: &Label, more: &[(&str, &str)], value: f64) {
        let pid = of.pid.map(|pid| pid.to_string());
        let mut labels = vec![("name", of.name.as_str())];
        labels.extend(pid.as_deref().map(|pid| ("pid", pid)));
        labels.extend(more);
        self.push(&labels, value);
    }

    /// Puts it on the page, unless there are no metrics.
    fn write(self, page: &mut String) {
        if self.text.len() > self.head_bytes {
            page.push_str(&self.text);
        }
    }
}

/// The value of a label. Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>, "Comments, help text, and type
/// information": any characters, but for these three.
fn push_escaped(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

/// What the processes that live take now.
fn sizes(page: &mut String, fleet: &Fleet) {
    type OfSizes = fn(&Sizes) -> Option<u64>;
    let sizes: [(&str, &str, OfSizes); 6] = [
        ("processes", "Number of live processes.", |sizes| Some(sizes.processes)),
        ("threads", "Number of threads of the live processes.", |sizes| Some(sizes.threads)),
        ("virtual_memory_bytes", "Address space of the live processes (VSZ).", |sizes| {
            Some(sizes.vsize_bytes)
        }),
        (
            "resident_memory_bytes",
            "Resident memory of the live processes (RSS); a shared page counts in each.",
            |sizes| Some(sizes.rss_bytes),
        ),
        (
            "proportional_memory_bytes",
            "Proportional share of resident memory (PSS) of the live processes, where it may be read.",
            |sizes| sizes.pss_bytes,
        ),
        ("swapped_memory_bytes", "Memory of the live processes in swap.", |sizes| sizes.swap_bytes),
    ];
    let all = fleet.sizes();
    for (name, help, figure) in sizes {
        let mut family = Family::gauge(name, help);
        for (label, sizes) in &all {
            if let Some(value) = figure(sizes) {
                family.of(label, &[], value as f64);
            }
        }
        family.write(page);
    }
}

/// What all processes did since they were met, those that have ended too.
fn counts(page: &mut String, fleet: &Fleet) {
    /// Label, its value, the figure.
    type Part = (&'static str, &'static str, fn(&Counts) -> f64);
    let counts: [(&str, &str, &[Part]); 6] = [
        (
            "processes_met_total",
            "Number of processes that began, were found, or took this name.",
            &[("", "", |counts| counts.met as f64)],
        ),
        (
            "processes_ended_total",
            "Number of processes that ended.",
            &[("", "", |counts| counts.ended as f64)],
        ),
        (
            "page_faults_total",
            "Page faults: minor ones without I/O, major ones with it.",
            &[
                ("kind", "minor", |counts| counts.own.minor_faults as f64),
                ("kind", "major", |counts| counts.own.major_faults as f64),
            ],
        ),
        (
            "cpu_seconds_total",
            "Processor time in programs (user) and in the kernel (system).",
            &[
                ("mode", "user", |counts| counts.own.user_us as f64 / 1e6),
                ("mode", "system", |counts| counts.own.system_us as f64 / 1e6),
            ],
        ),
        (
            "children_page_faults_total",
            "Page faults of children that ended and were waited for, and of their children, seen or not.",
            &[
                ("kind", "minor", |counts| counts.children.minor_faults as f64),
                ("kind", "major", |counts| counts.children.major_faults as f64),
            ],
        ),
        (
            "children_cpu_seconds_total",
            "Processor time of children that ended and were waited for, and of their children, seen or not.",
            &[
                ("mode", "user", |counts| counts.children.user_us as f64 / 1e6),
                ("mode", "system", |counts| counts.children.system_us as f64 / 1e6),
            ],
        ),
    ];
    for (name, help, parts) in counts {
        let mut family = Family::counter(name, help);
        for (label, counts) in fleet.counts() {
            for (part, value, figure) in parts {
                let more: &[(&str, &str)] = if part.is_empty() { &[] } else { &[(part, value)] };
                family.of(label, more, figure(counts));
            }
        }
        family.write(page);
    }
}

fn heaps(page: &mut String, fleet: &Fleet) {
    let mut processes = Family::gauge(
        "heap_processes",
        "Processes whose heaps were looked at, by the allocator that serves them.",
    );
    let mut used = Family::gauge("heap_used_bytes", "Bytes in blocks that programs have allocated.");
    let mut free = Family::gauge("heap_free_bytes", "Free bytes in heaps, resident or not.");
    let mut resident = Family::gauge("heap_resident_bytes", "Resident bytes of heaps, used or free.");
    let mut trapped = Family::gauge(
        "heap_trapped_bytes",
        "Bytes of heaps with memory that are free: pages that malloc_trim would return, those that it would keep, parts of pages in use, and what is in threads' caches.",
    );
    let mut arenas = Family::gauge("heap_arenas", "Number of glibc's arenas.");
    for ((label, allocator), heap) in fleet.heaps() {
        let allocator = [("allocator", allocator)];
        processes.of(label, &allocator, heap.processes as f64);
        for (family, figure) in [
            (&mut used, heap.used_bytes),
            (&mut free, heap.free_bytes),
            (&mut resident, heap.resident_bytes),
            (&mut arenas, heap.arenas),
        ] {
            if let Some(figure) = figure {
                family.of(label, &allocator, figure as f64);
            }
        }
        for (kind, bytes) in &heap.trapped_bytes {
            trapped.of(label, &[allocator[0], ("kind", kind)], *bytes as f64);
        }
    }
    let mut purged = Family::counter(
        "heap_purged_bytes_total",
        "Bytes that Faultless gave back to the kernel, of processes that publish it.",
    );
    for (label, counts) in fleet.counts() {
        if let Some(bytes) = counts.purged_bytes {
            purged.of(label, &[("allocator", "faultless")], bytes as f64);
        }
    }
    for family in [processes, used, free, resident, trapped, arenas, purged] {
        family.write(page);
    }
}

fn kinds(page: &mut String, fleet: &Fleet) {
    let help = "Resident bytes of mappings by what they are (kinds[].kind of faultless map --json).";
    let mut family = Family::gauge("mapped_resident_bytes", help);
    for ((label, kind), bytes) in fleet.kinds() {
        family.of(label, &[("kind", kind)], bytes as f64);
    }
    family.write(page);
}

fn control_groups(page: &mut String, fleet: &Fleet) {
    type OfGroup = fn(&GroupSample) -> Option<u64>;
    let memory: [(&str, OfGroup); 5] = [
        ("charged", |sample| Some(sample.current_bytes)),
        ("anonymous", |sample| sample.anonymous_bytes),
        ("file", |sample| sample.file_bytes),
        ("shared", |sample| sample.shared_bytes),
        ("swap", |sample| sample.swap_bytes),
    ];
    let help = "Memory of a control group: charged, and of that anonymous, file (page cache) and, of this, shared (shared memory, files in memory); swap.";
    let mut charged = Family::gauge("cgroup_memory_bytes", help);
    let mut limit =
        Family::gauge("cgroup_memory_limit_bytes", "The most that may be charged to a control group.");
    let counters: [(&str, &str, OfGroup); 4] = [
        ("cgroup_page_faults_total", "Page faults of a control group, of all kinds.", |sample| sample.faults),
        ("cgroup_major_page_faults_total", "Page faults of a control group that needed I/O.", |sample| {
            sample.major_faults
        }),
        ("cgroup_limit_hits_total", "How often a control group reached its limit.", |sample| {
            sample.limit_hits
        }),
        ("cgroup_oom_kills_total", "Processes of a control group killed for want of memory.", |sample| {
            sample.oom_kills
        }),
    ];
    let mut counted: Vec<Family> =
        counters.iter().map(|(name, help, _)| Family::counter(name, help)).collect();
    for group in fleet.control_groups() {
        let (Some(sample), path) = (&group.sample, group.path.as_str()) else { continue };
        for (kind, figure) in memory {
            if let Some(bytes) = figure(sample) {
                charged.push(&[("cgroup", path), ("kind", kind)], bytes as f64);
            }
        }
        if let Some(bytes) = sample.limit_bytes {
            limit.push(&[("cgroup", path)], bytes as f64);
        }
        for (family, (_, _, figure)) in counted.iter_mut().zip(&counters) {
            if let Some(count) = figure(sample) {
                family.push(&[("cgroup", path)], count as f64);
            }
        }
    }
    for family in [charged, limit].into_iter().chain(counted) {
        family.write(page);
    }
}

fn exporter(page: &mut String, own: &Own) {
    let mut build = Family::gauge("exporter_build_info", "The exporter's version; always 1.");
    build.push(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let mut processor =
        Family::counter("exporter_cpu_seconds_total", "Processor time of the exporter itself.");
    processor.push(&[], own.processor.as_secs_f64());
    let mut times =
        Family::counter("exporter_looks_total", "Number of looks into processes, at heaps or at mappings.");
    let mut took = Family::counter("exporter_look_seconds_total", "Time that looks into processes took.");
    let help = "Number of looks that failed: reading was not permitted, or the figures did not agree.";
    let mut failed = Family::counter("exporter_failed_looks_total", help);
    for (look, looks) in &own.looks {
        let at = match look {
            Look::Heap => [("at", "heap")],
            Look::Map => [("at", "map")],
        };
        times.push(&at, looks.times as f64);
        took.push(&at, looks.took.as_secs_f64());
        failed.push(&at, looks.failed as f64);
    }
    let help = "Time of the last look at all processes, in seconds since 1970.";
    let mut last = Family::gauge("exporter_last_round_timestamp_seconds", help);
    if let Some(at_s) = own.last_round_s {
        last.push(&[], at_s);
    }
    for family in [build, processor, last, times, took, failed] {
        family.write(page);
    }
}

#[cfg(test)]
mod tests;
