//! The kernel's description of an event.

use std::ffi::CString;
use std::fs;
use std::num::ParseIntError;
use std::os::unix::ffi::OsStrExt;

use faultless_records::perf_record::REGISTERS;
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_COUNT_SW_PAGE_FAULTS_MAJ, PERF_COUNT_SW_PAGE_FAULTS_MIN,
    PERF_COUNT_SW_TASK_CLOCK, PERF_FORMAT_LOST, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr,
};

use super::events::{Event, Plan, Sampling, Scope, What};
use super::refusal::PerfError;
use crate::file_limit;

/// Where the kernel tells the number of its kind of event for uprobes.
const UPROBE_TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// Bit of `config` that asks for a function's return; what `format/retprobe` says on every kernel so far.
const RETURN_PROBE: u64 = 1;

/// An attribute, and the string that it may point to.
pub(super) struct Attribute {
    pub kernel: perf_event_attr,
    _path: Option<CString>,
}

/// What kernels know, the older ones less.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abilities {
    /// Records of mappings tell the build id: from Linux 5.12 on.
    pub has_build_ids: bool,
    /// Reading an event tells how much of it was lost: from Linux 6.0 on.
    pub tells_lost: bool,
}

impl Abilities {
    /// Those of every kernel.
    pub const LEAST: Self = Self { has_build_ids: false, tells_lost: false };
}

/// The attribute of an event of the plan.
///
/// # Errors
/// When the kernel has no uprobes, or a path holds a NUL.
pub(super) fn of_event(event: &Event, plan: &Plan, abilities: Abilities) -> Result<Attribute, PerfError> {
    let mut kernel = empty();
    let mut path = None;
    match &event.what {
        What::MinorFaults => software(&mut kernel, PERF_COUNT_SW_PAGE_FAULTS_MIN),
        What::MajorFaults => software(&mut kernel, PERF_COUNT_SW_PAGE_FAULTS_MAJ),
        What::ProcessorTime => software(&mut kernel, PERF_COUNT_SW_TASK_CLOCK),
        What::Tracepoint { id, .. } => {
            kernel.type_ = PERF_TYPE_TRACEPOINT;
            kernel.config = *id;
        }
        What::Function { file, offset, is_return } => {
            let lack = |reason: String| PerfError::NoProbes(format!("{UPROBE_TYPE}: {reason}"));
            let number = fs::read_to_string(UPROBE_TYPE).map_err(|error| {
                if file_limit::is_reached(&error) {
                    return PerfError::Files { needed: 0 };
                }
                lack(error.to_string())
            })?;
            kernel.type_ = number.trim().parse().map_err(|error: ParseIntError| lack(error.to_string()))?;
            kernel.config = if *is_return { RETURN_PROBE } else { 0 };
            let named = CString::new(file.as_os_str().as_bytes());
            let file = path.insert(named.map_err(|error| PerfError::System {
                what: "a probe at a function".into(),
                error: error.into(),
            })?);
            kernel.__bindgen_anon_3.uprobe_path = file.as_ptr().expose_provenance() as u64;
            kernel.__bindgen_anon_4.probe_offset = *offset;
        }
    }
    match event.sampling {
        Sampling::Count => {}
        Sampling::Every(period) => kernel.__bindgen_anon_1.sample_period = period,
    }
    kernel.set_exclude_kernel(u64::from(event.scope == Scope::User));
    kernel.set_exclude_user(u64::from(event.scope == Scope::Kernel));
    kernel.set_enable_on_exec(u64::from(plan.waits_for_exec && event.starts_enabled));
    if event.sampling != Sampling::Count {
        describe_samples(&mut kernel, plan, abilities);
    }
    Ok(Attribute { kernel, _path: path })
}

/// The attribute of the event that carries mappings, names, starts and ends, and owns the buffer.
pub(super) fn of_records(plan: &Plan, abilities: Abilities) -> Attribute {
    let mut kernel = empty();
    software(&mut kernel, PERF_COUNT_SW_DUMMY);
    kernel.set_exclude_kernel(1);
    // Without an exec to wait for, starts of threads are told from the first moment on.
    kernel.set_disabled(u64::from(plan.waits_for_exec));
    kernel.set_enable_on_exec(u64::from(plan.waits_for_exec));
    describe_samples(&mut kernel, plan, abilities);
    if plan.follows_processes {
        kernel.set_mmap(1);
        kernel.set_mmap2(1);
        kernel.set_mmap_data(1);
        kernel.set_comm(1);
        kernel.set_comm_exec(1);
        kernel.set_task(1);
        kernel.set_build_id(u64::from(abilities.has_build_ids));
    }
    Attribute { kernel, _path: None }
}

fn empty() -> perf_event_attr {
    let mut kernel =
        perf_event_attr { size: size_of::<perf_event_attr>() as u32, ..perf_event_attr::default() };
    kernel.set_disabled(1);
    kernel.set_inherit(1);
    kernel.set_exclude_hv(1);
    kernel
}

fn software(kernel: &mut perf_event_attr, config: u32) {
    kernel.type_ = PERF_TYPE_SOFTWARE;
    kernel.config = u64::from(config);
}

fn describe_samples(kernel: &mut perf_event_attr, plan: &Plan, abilities: Abilities) {
    kernel.read_format = if abilities.tells_lost { u64::from(PERF_FORMAT_LOST) } else { 0 };
    kernel.sample_type = plan.content.sample_type();
    kernel.set_sample_id_all(1);
    kernel.set_use_clockid(1);
    kernel.clockid = nix::libc::CLOCK_MONOTONIC;
    if plan.content.has_callchain {
        kernel.set_exclude_callchain_kernel(1);
    }
    if plan.content.stack_bytes > 0 {
        kernel.sample_regs_user = REGISTERS;
        // The kernel takes multiples of eight.
        kernel.sample_stack_user = plan.content.stack_bytes / 8 * 8;
    }
}
