//! Trees and folded chains of a small recording, which other formats are tested with, too.

use super::*;
use faultless_records::bench::Machine;
use faultless_records::call_tree::{Call, CallFrame, CallModule, CallTree};
use faultless_records::fault_recording::*;

fn frame(function: Option<&str>, line: u32) -> CallFrame {
    CallFrame {
        function: function.map(str::to_owned),
        file: function.map(|_| "/src/a b.c".into()),
        line: Some(line),
        module: Some(0),
        offset: 0x40,
        is_inlined: false,
    }
}

/// 100 short lives, of which the same place was looked at each time: 6,900 faults.
pub(crate) fn recording_of_short_lives() -> FaultRecording {
    let mut recording = recording();
    let step = &mut recording.method.steps[0];
    (step.minor_period, step.minor_faults, step.ended_threads) = (53, 100 * 69, 100);
    recording.counters.user.minor = 100 * 69;
    recording.faults.truncate(1);
    (recording.faults[0].samples, recording.faults[0].weight) = (100, 100.0);
    recording
}

/// `main` calls `dgemm` with 95 faults and a nameless function with 5, of which 2 are major and in a system call.
pub(crate) fn recording() -> FaultRecording {
    let faults = |call, samples, is_major| {
        let weight = samples as f64;
        Faults { call: Some(call), is_major, in_kernel: is_major, samples, weight, ..Faults::default() }
    };
    let step =
        Step { minor_period: 1, major_period: 1, minor_faults: 98, major_faults: 2, ..Step::default() };
    FaultRecording {
        format: FORMAT.into(),
        tool_version: "0.1.0".into(),
        started_unix_s: 1,
        duration_ns: 2_000_000_000,
        machine: Machine { processor: "p".into(), cpus: 2, ..Machine::default() },
        subject: Subject { command: vec!["chem".into()], pid: 7, name: "chem".into() },
        method: Method {
            steps: vec![step],
            stack_bytes: 8192,
            cut_chains: 3,
            lost_samples: 4,
            buffer_bytes: 1 << 20,
            sees_huge_pages: true,
            ..Method::default()
        },
        counters: Counters {
            user: FaultCounts { minor: 98, major: 2 },
            accounts: Some(FaultCounts { minor: 150, major: 2 }),
            before: FaultCounts { minor: 20, major: 0 },
            ..Counters::default()
        },
        cost: Cost { observer_cpu_ns: 5_000_000, subject_cpu_ns: Some(500_000_000) },
        processes: vec![FaultProcess { pid: 7, name: "chem".into() }],
        places: vec![Place { mapping: "//anon".into(), protection: 3, flags: 2, ..Place::default() }],
        tree: CallTree {
            modules: vec![CallModule {
                path: "/bin/chem".into(),
                build_id: None,
                trouble: Some("gone".into()),
            }],
            frames: vec![frame(Some("main"), 9), frame(Some("dgemm"), 5), frame(None, 0)],
            calls: vec![
                Call { parent: None, frame: 0 },
                Call { parent: Some(0), frame: 1 },
                Call { parent: Some(0), frame: 2 },
            ],
        },
        faults: vec![faults(1, 95, false), faults(2, 3, false), faults(2, 2, true)],
        ..FaultRecording::default()
    }
}

#[test]
fn the_tree_goes_inwards_and_the_most_comes_first() {
    let text = text(&recording());
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    assert_eq!(lines[1], "100  100.0 %  chem");
    assert_eq!(lines[2], "100  100.0 %  main  (chem)");
    assert_eq!(lines[3], "95   95.0 %  ├ dgemm  (chem)");
    assert_eq!(lines[4], "5    5.0 %  └ chem+0x40");
    assert_eq!(lines[5], "2    2.0 %    [in the kernel]");
}

#[test]
fn folded_chains_are_what_flame_graph_tools_read() {
    let mut recording = recording();
    recording.tree.frames[1].function = Some("f(a; b)".into());
    assert_eq!(
        folded(&recording),
        "chem;main;chem+0x40 3\nchem;main;chem+0x40;[in the kernel] 2\nchem;main;f(a: b) 95\n"
    );
}

#[test]
fn an_empty_recording_has_an_empty_tree() {
    let mut recording = recording();
    recording.faults.clear();
    assert_eq!(folded(&recording), "[not looked at] 100\n");
    recording.counters.user = faultless_records::fault_recording::FaultCounts::default();
    assert_eq!((text(&recording).lines().count(), folded(&recording)), (1, String::new()));
}
