//! Sessions on threads of our own; where the kernel allows none, its refusal is looked at instead.

use super::*;
use crate::memory_call_filter::where_refused;
use crate::perf::moment::CLOCK_SLACK;
use crate::perf::{Access, Event, Scope, access};
use faultless_records::perf_record::{Content, NewMapping};

fn plan(sampling: Sampling) -> Plan {
    let event =
        |sampling| Event { what: What::MinorFaults, sampling, scope: Scope::User, starts_enabled: true };
    Plan {
        events: vec![event(sampling), event(Sampling::Count)],
        content: Content { has_address: true, has_callchain: false, has_raw: false, stack_bytes: 1024 },
        follows_processes: true,
        waits_for_exec: false,
        buffer_bytes: 1 << 20,
    }
}

/// Touches fresh pages, whose addresses are known, and gives them back.
fn touch(pages: usize) -> std::ops::Range<u64> {
    let bytes = pages * 4096;
    // SAFETY: a private mapping of our own at a place of the kernel's choice.
    let base = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    for page in 0..pages {
        // SAFETY: inside the mapping.
        unsafe { base.cast::<u8>().add(page * 4096).write_volatile(1) };
    }
    // SAFETY: nothing points into it any more.
    unsafe { libc::munmap(base, bytes) };
    base as u64..base as u64 + bytes as u64
}

/// What was opened, or nothing where the kernel refuses with a line that tells the cure.
fn permitted<T>(opened: Result<T, PerfError>) -> Option<T> {
    match opened {
        Ok(opened) => Some(opened),
        Err(error) => {
            assert!(error.is_refusal(), "{error}");
            faultless_skipped::skipped(error);
            None
        }
    }
}

/// A session on this thread, where the kernel permits one.
fn session(sampling: Sampling) -> Option<Session> {
    opened(plan(sampling))
}

fn opened(plan: Plan) -> Option<Session> {
    permitted(access().and_then(|_| Session::open(plan, &[nix::unistd::gettid().as_raw()])))
}

/// The same, of a kernel that tells what was lost.
fn telling_of_losses(plan: Plan) -> Option<Session> {
    let session = opened(plan)?;
    if !session.abilities.tells_lost {
        faultless_skipped::skipped("this kernel does not tell what was lost (Linux 6.0)");
        return None;
    }
    Some(session)
}

#[test]
fn buffers_of_many_cpus_are_together_no_larger_than_those_of_few() {
    assert_eq!(buffer_bytes(8 << 20, 2), 8 << 20);
    assert_eq!(buffer_bytes(5 << 20, 8), 8 << 20);
    for cpus in [0, 1, 2, 7, 9, 48, 255, 256, 1000, 1024] {
        let bytes = buffer_bytes(8 << 20, cpus);
        assert!(bytes.is_power_of_two() && bytes * cpus <= BUFFERS_BYTES, "{cpus}: {bytes}");
        assert!(bytes == 8 << 20 || bytes * cpus * 2 > BUFFERS_BYTES, "{cpus}: {bytes} is too little");
    }
    assert_eq!(buffer_bytes(8 << 20, 8192), SMALLEST_BYTES);
    assert_eq!(buffer_bytes(1, 1), SMALLEST_BYTES);
}

#[test]
fn every_fault_of_a_thread_is_seen_with_its_address_and_stack() {
    let Some(mut session) = session(Sampling::Every(1)) else { return };
    session.start().unwrap();
    let range = touch(100);
    session.disable(0).unwrap();
    session.disable(1).unwrap();
    let records = session.read_last();
    let mut addresses = Vec::new();
    for record in &records {
        if let News::Sample(sample) = &record.news {
            assert_eq!(session.place_of(sample.event), Some(0));
            assert!(sample.registers.unwrap().sp > 0 && !sample.stack.is_empty());
            addresses.push(sample.address);
        }
    }
    let inside = addresses.iter().filter(|address| range.contains(address)).count();
    assert_eq!(inside, 100, "lost: {}", session.lost_samples());
    assert!(session.count(1).unwrap() >= 100);
    // The kernel tells of a new mapping together with a neighbour that it is joined to.
    let holds = |new: &NewMapping| (new.start..new.start + new.length_bytes).contains(&range.start);
    let mapped = |record: &PerfRecord| matches!(&record.news, News::Mapping(new) if holds(new));
    assert!(records.iter().any(mapped), "the mapping itself is recorded, too");
    assert!(records.is_sorted_by_key(|record| record.time_ns));
}

#[test]
fn sessions_read_until_one_moment_tell_nothing_younger_and_lose_nothing() {
    let (Some(mut first), Some(mut second)) = (session(Sampling::Every(1)), session(Sampling::Every(1)))
    else {
        return;
    };
    first.start().unwrap();
    second.start().unwrap();
    touch(100);
    std::thread::sleep(2 * CLOCK_SLACK);
    let moment = Moment::settled();
    let before = first.read_until(moment);
    touch(100);
    std::thread::sleep(2 * CLOCK_SLACK);
    let faults = |records: &[PerfRecord]| {
        records.iter().filter(|record| matches!(record.news, News::Sample(_))).count()
    };
    // The second is read later, when more has happened.
    let beside = second.read_until(moment);
    assert!(before.iter().chain(&beside).all(|record| record.time_ns < moment.ns()));
    assert!((100..200).contains(&faults(&before)) && (100..200).contains(&faults(&beside)));
    assert!(faults(&first.read_last()) >= 100 && faults(&second.read_last()) >= 100);
}

#[test]
fn samples_and_their_period_account_for_all_faults() {
    let Some(mut session) = session(Sampling::Every(101)) else { return };
    session.start().unwrap();
    for _ in 0..40 {
        touch(500);
    }
    session.disable(0).unwrap();
    session.disable(1).unwrap();
    let samples = session.read_last().iter().filter(|record| matches!(record.news, News::Sample(_))).count();
    let periods = samples as u64 * 101;
    let all = session.count(1).unwrap();
    // Of each CPU less than one period is left over.
    let left = 101 * (online_cpus().len() as u64 + 1);
    assert!(all >= 20_000 && periods <= all + left && periods + left >= all, "{periods} of {all}");
}

#[test]
fn what_no_later_record_tells_to_be_lost_is_counted_at_the_end() {
    let mut small = plan(Sampling::Every(1));
    small.buffer_bytes = SMALLEST_BYTES;
    let Some(mut session) = telling_of_losses(small) else { return };
    session.start().unwrap();
    touch(2000);
    session.disable(0).unwrap();
    let records = session.read_last();
    let samples = records.iter().filter(|record| matches!(record.news, News::Sample(_))).count();
    assert!(session.lost_samples() > 0, "{samples} samples have room");
    assert!(session.is_crowded());
    assert_eq!(samples as u64 + session.lost_samples(), session.count(0).unwrap());
    let lost = |record: &PerfRecord| if let News::Lost(number) = record.news { number } else { 0 };
    assert_eq!(records.iter().map(lost).sum::<u64>(), session.lost_samples());
    // What this thread maps meanwhile may be told, too.
    let is_again = |record: &PerfRecord| matches!(record.news, News::Sample(_) | News::Lost(_));
    assert!(!session.read_last().iter().any(is_again), "it is told once");
    assert!(!session.is_crowded());
}

#[test]
fn what_was_lost_is_known_of_each_event() {
    let mut both = plan(Sampling::Every(1));
    (both.events[1].sampling, both.events[1].starts_enabled) = (Sampling::Every(3), false);
    both.buffer_bytes = SMALLEST_BYTES;
    let Some(mut session) = telling_of_losses(both) else { return };
    session.start().unwrap();
    touch(2000);
    // One after the other: of a fault that both see the kernel gives both samples the same number.
    session.disable(0).unwrap();
    session.enable(1).unwrap();
    touch(2000);
    session.disable(1).unwrap();
    let records = session.read_last();
    for (event, period) in [(0, 1), (1, 3)] {
        let is_of_it = |record: &&PerfRecord| matches!(&record.news, News::Sample(sample) if session.place_of(sample.event) == Some(event));
        let due = records.iter().filter(is_of_it).count() as u64 + session.lost_of(event..event + 1).unwrap();
        let counted = session.count(event).unwrap();
        // Of each CPU less than one period is left over.
        let left = (period - 1) * online_cpus().len() as u64;
        assert!((due * period..=due * period + left).contains(&counted), "{due} of {counted}");
    }
    assert_eq!(session.lost_of(0..2), Some(session.lost_samples()));
}

#[test]
fn threads_started_later_are_followed() {
    let Some(mut session) = session(Sampling::Every(1)) else { return };
    session.start().unwrap();
    let thread = std::thread::spawn(|| (nix::unistd::gettid().as_raw(), touch(50)));
    let (tid, range) = thread.join().unwrap();
    session.disable(0).unwrap();
    let records = session.read_last();
    let started = |record: &PerfRecord| record.tid == tid && matches!(record.news, News::Fork { .. });
    assert!(records.iter().any(started));
    let of_thread = |record: &&PerfRecord| {
        record.tid == tid && matches!(&record.news, News::Sample(sample) if range.contains(&sample.address))
    };
    assert_eq!(records.iter().filter(of_thread).count(), 50);
}

#[test]
fn buffers_shrink_to_what_may_be_locked() {
    if permitted(access()).is_none() {
        return;
    }
    let mut plan = plan(Sampling::Every(1));
    // More than any limit, and than the addresses of a process.
    plan.buffer_bytes = 1 << 46;
    let session = Session::open(plan, &[nix::unistd::gettid().as_raw()]).unwrap();
    assert!(session.buffer_bytes() >= SMALLEST_BYTES && session.buffer_bytes() < 1 << 46);
    let mut of_samples = session.buffers.iter().filter(|buffer| buffer.is_for_samples);
    assert!(of_samples.all(|buffer| buffer.ring.waiting_bytes() == 0), "nothing is enabled yet");
}

#[test]
fn a_seccomp_filter_that_hides_events_is_named() {
    for (errno, word) in [(libc::EPERM, "seccomp"), (libc::ENOSYS, "seccomp"), (libc::EACCES, "seccomp")] {
        let text =
            where_refused(libc::SYS_perf_event_open, None, errno, || access().unwrap_err().to_string());
        let is_closed = rights().paranoid.is_some_and(|paranoid| paranoid > 2);
        assert!(text.contains(word) || is_closed, "{text}");
    }
}

#[test]
fn a_thread_that_is_gone_is_said_to_be_gone() {
    let Some(access) = permitted(access()) else { return };
    if !matches!(access, Access::User | Access::UserAndKernel) {
        return faultless_skipped::skipped(format!("the events of this machine are {access:?}"));
    }
    let error = Session::open(plan(Sampling::Every(1)), &[i32::MAX]).map(|_| ()).unwrap_err();
    assert!(matches!(error, PerfError::Ended(i32::MAX)), "{error}");
}

#[test]
fn a_probe_that_cannot_be_is_refused_in_words() {
    if permitted(access()).is_none() {
        return;
    }
    // No file has such a name, so it is refused before the kernel is asked.
    let what = What::Function { file: "a\0b".into(), offset: 1, is_return: false };
    let event = Event { what, sampling: Sampling::Count, scope: Scope::User, starts_enabled: false };
    let plan = Plan { events: vec![event], ..plan(Sampling::Count) };
    let text = Session::open(plan, &[nix::unistd::gettid().as_raw()]).err().unwrap().to_string();
    assert!(text.contains("a probe at a function") && !text.contains('{'), "{text}");
}
