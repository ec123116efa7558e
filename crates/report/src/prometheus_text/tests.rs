use faultless_diagnosis::fleet::Grouping;
use faultless_diagnosis::fleet::heap::Heap;
use faultless_records::recording::{Group, Line, Process, Sample};

use super::*;

fn fleet(grouping: Grouping, name: &str) -> Fleet {
    let mut fleet = Fleet::new(grouping, 0);
    fleet.add(Line::Process(Process { pid: 42, name: name.into(), ..Process::default() }));
    let rss_bytes = Some(8 << 30);
    let sample = Sample {
        rss_bytes,
        threads: 3,
        minor_faults: 12_345_678,
        user_s: 0.25,
        system_s: 1.5,
        children_user_s: 2.25,
        children_system_s: 3.5,
        ..Sample::default()
    };
    fleet.add(Line::Sample(sample));
    fleet
}

fn lines(fleet: &Fleet) -> Vec<String> {
    let own = Own { last_round_s: Some(1.5e9), ..Own::default() };
    let mut page = String::new();
    write(&mut page, fleet, &own);
    page.lines().map(str::to_owned).collect()
}

#[test]
fn sizes_are_gauges_and_counts_are_counters_in_base_units() {
    let lines = lines(&fleet(Grouping::Name, "postgres"));
    for expected in [
        "# TYPE faultless_resident_memory_bytes gauge",
        "faultless_resident_memory_bytes{name=\"postgres\"} 8589934592",
        "faultless_threads{name=\"postgres\"} 3",
        "# TYPE faultless_page_faults_total counter",
        "faultless_page_faults_total{name=\"postgres\",kind=\"minor\"} 12345678",
        "faultless_cpu_seconds_total{name=\"postgres\",mode=\"user\"} 0.25",
        "faultless_cpu_seconds_total{name=\"postgres\",mode=\"system\"} 1.5",
        "faultless_children_cpu_seconds_total{name=\"postgres\",mode=\"user\"} 2.25",
        "faultless_children_cpu_seconds_total{name=\"postgres\",mode=\"system\"} 3.5",
        concat!("faultless_exporter_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "faultless_exporter_last_round_timestamp_seconds 1500000000",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
    }
    let unknown = ["proportional_memory", "swapped_memory", "heap_", "cgroup_"];
    let is_unknown =
        |line: &&String| unknown.iter().any(|name| line.starts_with(&format!("faultless_{name}")));
    assert_eq!(lines.iter().find(is_unknown), None);
}

#[test]
fn names_of_processes_cannot_break_out_of_their_label() {
    let lines = lines(&fleet(Grouping::Process, "a\"b\\c\nd"));
    let expected = "faultless_processes{name=\"a\\\"b\\\\c\\nd\",pid=\"42\"} 1";
    assert!(lines.iter().any(|line| line == expected), "{lines:#?}");
}

#[test]
fn heaps_have_their_allocator_what_is_trapped_its_reason_and_mappings_their_kind() {
    let mut fleet = fleet(Grouping::Name, "java");
    let glibc = Heap { used_bytes: Some(7), trapped_bytes: vec![("pinned", 5)], ..Heap::of_another("glibc") };
    fleet.set_heap(0, glibc);
    fleet.set_kinds(0, vec![("java_heap", 9)]);
    let lines = lines(&fleet);
    for expected in [
        "faultless_heap_processes{name=\"java\",allocator=\"glibc\"} 1",
        "faultless_mapped_resident_bytes{name=\"java\",kind=\"java_heap\"} 9",
        "faultless_heap_used_bytes{name=\"java\",allocator=\"glibc\"} 7",
        "faultless_heap_trapped_bytes{name=\"java\",allocator=\"glibc\",kind=\"pinned\"} 5",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.starts_with("faultless_heap_resident_bytes")));
}

#[test]
fn what_faultless_gave_back_begins_at_zero_so_that_the_first_increase_is_one() {
    let mut fleet = fleet(Grouping::Name, "java");
    let faultless = Heap { purged_bytes: Some(0), ..Heap::of_another("faultless") };
    fleet.set_heap(0, faultless);
    let purged = "faultless_heap_purged_bytes_total{name=\"java\",allocator=\"faultless\"} 0";
    assert!(lines(&fleet).iter().any(|line| line == purged));
}

#[test]
fn control_groups_show_what_they_know() {
    let mut fleet = fleet(Grouping::Name, "java");
    fleet.add(Line::Group(Group { path: "/sys/fs/cgroup/x".into(), ..Group::default() }));
    let (shared_bytes, oom_kills) = (Some(2), Some(2));
    let sample = GroupSample { current_bytes: 9, shared_bytes, oom_kills, ..GroupSample::default() };
    fleet.add(Line::GroupSample(sample));
    let lines = lines(&fleet);
    for expected in [
        "faultless_cgroup_memory_bytes{cgroup=\"/sys/fs/cgroup/x\",kind=\"charged\"} 9",
        "faultless_cgroup_memory_bytes{cgroup=\"/sys/fs/cgroup/x\",kind=\"shared\"} 2",
        "faultless_cgroup_oom_kills_total{cgroup=\"/sys/fs/cgroup/x\"} 2",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.starts_with("faultless_cgroup_memory_limit_bytes")));
}

#[test]
fn an_exporter_without_figures_raises_an_alert_under_the_job_that_the_manual_names() {
    let rules = include_str!("../../../../docs/prometheus/rules.yml");
    let manual = include_str!("../../../../docs/export.md");
    assert!(manual.contains("job_name: faultless\n"));
    // What does not answer, or with 503, has no series: nothing that is computed of them can be true.
    assert!(rules.contains("expr: up{job=\"faultless\"} == 0\n"), "{rules}");
    assert!(rules.contains("unless on (instance) faultless_exporter_build_info\n"), "{rules}");
}

#[test]
fn the_alert_of_a_limit_divides_all_that_cannot_be_dropped_and_not_by_nothing() {
    let rules = include_str!("../../../../docs/prometheus/rules.yml");
    let expression = "sum without (kind) (faultless_cgroup_memory_bytes{kind=~\"anonymous|shared\"}) / (faultless_cgroup_memory_limit_bytes > 0) > 0.9 for:";
    assert!(rules.split_whitespace().collect::<Vec<_>>().join(" ").contains(expression));
}

#[test]
fn dashboard_and_alerts_ask_for_metrics_that_exist() {
    let mut fleet = fleet(Grouping::Name, "java");
    let all = Sample { t: 1.0, pss_bytes: Some(1), swap_bytes: Some(1), ..Sample::default() };
    fleet.add(Line::Sample(all));
    fleet.add(Line::Group(Group::default()));
    let most = Some(1);
    let group = GroupSample { limit_bytes: most, faults: most, oom_kills: most, ..GroupSample::default() };
    fleet.add(Line::GroupSample(group));
    fleet.set_kinds(0, vec![("java_heap", 9)]);
    fleet.set_heap(
        0,
        Heap {
            used_bytes: most,
            free_bytes: most,
            resident_bytes: most,
            arenas: most,
            trapped_bytes: vec![("pinned", 5)],
            ..Heap::of_another("glibc")
        },
    );
    let known: Vec<String> = lines(&fleet);
    for document in [
        include_str!("../../../../docs/prometheus/grafana.json"),
        include_str!("../../../../docs/prometheus/rules.yml"),
    ] {
        let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let mut names: Vec<&str> = document
            .match_indices("faultless_")
            .map(|(at, _)| document[at..].split(|letter| !is_name(letter)).next().unwrap())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() > 3, "{names:?}");
        for name in names {
            assert!(known.iter().any(|line| line.starts_with(&format!("# TYPE {name} "))), "{name}");
        }
    }
}
