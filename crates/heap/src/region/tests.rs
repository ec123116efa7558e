//! Regions against the kernel of this machine: what it may refuse is checked to be refused in words.

mod search;

use super::*;
use crate::os::Call;
use search::faults_of_a_search;
use std::ffi::CString;
use std::fs;
use std::sync::Mutex;

const MIB: usize = 1 << 20;

fn refusing<T>(calls: &[Call], action: impl FnOnce() -> T) -> T {
    os::REFUSED.set(calls.iter().fold(0, |bits, &call| bits | call as u32));
    let result = action();
    os::REFUSED.set(0);
    result
}

/// Mappings of files in memory with this name.
fn mappings_of(name: &str) -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().matches(name).count()
}

fn every_kind() -> impl Iterator<Item = (Sharing, PageWish, Populate)> {
    let sharings = [Sharing::Private, Sharing::Shared];
    let wishes = [PageWish::Small, PageWish::HugeWanted];
    sharings.into_iter().flat_map(move |sharing| {
        wishes.into_iter().flat_map(move |wish| {
            [Populate::Now, Populate::InBackground].map(|populate| (sharing, wish, populate))
        })
    })
}

#[test]
fn a_search_of_a_populated_region_takes_no_fault_and_one_of_a_region_by_use_does() {
    for (sharing, wish, populate) in every_kind() {
        let options = RegionOptions::new(24 * MIB + 100).sharing(sharing).pages(wish).populate(populate);
        let mut region = options.threads(2).map().unwrap();
        region.wait(&mut silent()).unwrap();
        assert_eq!(faults_of_a_search(&region), 0, "{sharing:?} {wish:?} {populate:?}");
        region[5] = 1;
        let region = region.freeze().unwrap();
        assert_eq!(faults_of_a_search(&region), 0, "frozen {sharing:?} {wish:?} {populate:?}");
        assert_eq!(region.len(), 24 * MIB + 100);
    }
    let region = RegionOptions::new(8 * MIB).pages(PageWish::Small).populate(Populate::ByUse).map().unwrap();
    assert!(faults_of_a_search(&region) >= 100, "the count of faults sees faults");
}

/// Bytes of huge pages that the kernel gives for the asking at the moment, to a mapping made without what a region decides.
fn huge_bytes_to_be_had(sharing: Sharing) -> usize {
    let file = Descriptor::create_memory(c"faultless-control", None).unwrap();
    file.resize(8 * MIB).unwrap();
    let store = if sharing == Sharing::Shared { Store::File(&file) } else { Store::Private };
    let base = os::map_region(8 * MIB, 2 * MIB, store, Access::ReadWrite).unwrap();
    let _ = os::advise_region(base, 8 * MIB, os::HugePageAdvice::Always);
    // SAFETY: just mapped.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(base).write_bytes(1, 8 * MIB) };
    if expected_obstacle(sharing).is_some() {
        let _ = os::collapse_region(base, 8 * MIB);
    }
    let huge_bytes = pages::read(base, 8 * MIB, 4096, None).unwrap().huge_bytes;
    // SAFETY: used here alone.
    unsafe { os::unmap_region(base, 8 * MIB) };
    huge_bytes
}

/// What the system's settings say against huge pages.
fn expected_obstacle(sharing: Sharing) -> Option<Obstacle> {
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let (file, is_never, obstacle) = match sharing {
        Sharing::Private => ("enabled", ["[never]"].as_slice(), Obstacle::Never),
        Sharing::Shared => ("shmem_enabled", ["[never]", "[deny]"].as_slice(), Obstacle::SharedNever),
    };
    if fs::metadata(format!("{folder}/hpage_pmd_size")).is_err() {
        return Some(Obstacle::Missing);
    }
    let setting = fs::read_to_string(format!("{folder}/{file}")).unwrap_or_default();
    let is_never = is_never.iter().any(|word| setting.contains(word));
    if os::are_huge_pages_disabled(true) { Some(Obstacle::Disabled) } else { is_never.then_some(obstacle) }
}

#[test]
fn small_pages_are_small_and_huge_ones_come_or_it_is_said_why() {
    let mut region = RegionOptions::new(8 * MIB).pages(PageWish::Small).map().unwrap();
    let pages = region.pages().unwrap();
    assert_eq!((pages.resident_bytes, pages.huge_bytes, pages.obstacle), (8 * MIB, 0, None));
    region[0] = 1;
    for sharing in [Sharing::Private, Sharing::Shared] {
        let has_huge_pages = || {
            let region = RegionOptions::new(8 * MIB).sharing(sharing).map().unwrap();
            let pages = region.pages().unwrap();
            assert_eq!(pages.resident_bytes, 8 * MIB, "{sharing:?}: neighbours are not counted");
            assert!(pages.huge_bytes <= 8 * MIB);
            assert_eq!(pages.obstacle, expected_obstacle(sharing), "{sharing:?}");
            pages.huge_bytes > 0
        };
        // Where the kernel has none to give, its memory too scattered or without the call, a region has none either. Other tests
        // take and free huge pages meanwhile, so once is not enough.
        let comes = (0..4).any(|_| has_huge_pages() || huge_bytes_to_be_had(sharing) == 0);
        assert!(comes, "{sharing:?}: huge pages were to be had and the region has none");
    }
}

#[test]
fn required_huge_pages_come_from_the_pool_or_the_pool_is_named() {
    let options = || RegionOptions::new(4 * MIB).pages(PageWish::HugeRequired);
    for sharing in [Sharing::Private, Sharing::Shared] {
        match options().sharing(sharing).map() {
            Ok(region) => {
                let pages = region.pages().unwrap();
                assert!(pages.page_bytes > 4096 && pages.huge_bytes == pages.resident_bytes);
                assert_eq!(faults_of_a_search(&region), 0);
            }
            Err(error) => {
                let is_pool = matches!(error, RegionError::Limit { limit: Limit::HugePagePool { .. }, .. });
                assert!(is_pool || matches!(error, RegionError::Argument(_)), "{error}");
                faultless_skipped::skipped(error);
            }
        }
    }
    let odd = options().huge_page_bytes(3 * MIB).map();
    assert!(matches!(odd, Err(RegionError::Argument(_))));
    let unwanted = RegionOptions::new(1).huge_page_bytes(2 * MIB).map();
    assert!(matches!(unwanted, Err(RegionError::Argument(_))));
}

#[test]
fn what_is_written_while_the_background_populates_stays() {
    let mut region = RegionOptions::new(96 * MIB).populate(Populate::InBackground).threads(2).map().unwrap();
    for (index, word) in region.view_mut::<u64>().iter_mut().step_by(512).enumerate() {
        *word = index as u64;
    }
    region.wait(&mut silent()).unwrap();
    assert_eq!(region.progress(), Progress { done_bytes: 96 * MIB, total_bytes: 96 * MIB });
    let words = region.view::<u64>().iter().step_by(512).enumerate();
    assert!(words.into_iter().all(|(index, &word)| word == index as u64));
}

#[test]
fn progress_is_told_and_cancelling_leaves_nothing_behind() {
    let seen = Mutex::new(Vec::new());
    let mut tell = |progress: Progress| {
        seen.lock().unwrap().push(progress.done_bytes);
        ControlFlow::Continue(())
    };
    fn options<'a>() -> RegionOptions<'a> {
        RegionOptions::new(64 * MIB).sharing(Sharing::Shared).threads(1)
    }
    drop(options().on_progress(&mut tell).map().unwrap());
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_sorted() && seen.len() >= 4 && seen.last() == Some(&(64 * MIB)), "{seen:?}");

    let mut cancel = |_: Progress| ControlFlow::Break(());
    let result = options().name(c"faultless-cancelled").on_progress(&mut cancel).map();
    let Err(RegionError::Cancelled { done_bytes, total_bytes }) = result else { panic!("not cancelled") };
    assert!(done_bytes < total_bytes && total_bytes == 64 * MIB);
    assert_eq!(mappings_of("faultless-cancelled"), 0);
}

#[test]
fn populating_that_was_cancelled_can_be_done_again() {
    let mut region = RegionOptions::new(64 * MIB).populate(Populate::ByUse).threads(1).map().unwrap();
    let mut cancel = |_: Progress| ControlFlow::Break(());
    assert!(matches!(region.populate(&mut cancel), Err(RegionError::Cancelled { .. })));
    region.populate_in_background().unwrap();
    region.wait(&mut silent()).unwrap();
    assert_eq!(faults_of_a_search(&region), 0);
}

#[test]
fn refusals_are_told_and_leave_nothing_behind() {
    let map = |name| RegionOptions::new(4 * MIB).sharing(Sharing::Shared).name(name).threads(1).map();
    let step = |result: Result<Region, RegionError>| match result {
        Err(RegionError::Refused { step, .. }) => step,
        _ => panic!("not refused"),
    };
    let name = c"faultless-refused";
    assert_eq!(step(refusing(&[Call::CreateFile], || map(name))), Step::File);
    assert_eq!(step(refusing(&[Call::MapRegion], || map(name))), Step::Map);
    assert_eq!(step(refusing(&[Call::Populate], || map(name))), Step::Populate);
    let locked = || RegionOptions::new(4096).name(name).checked(false).locked(true).map();
    assert_eq!(step(refusing(&[Call::LockPages], locked)), Step::Lock);
    assert_eq!(mappings_of("faultless-refused"), 0);

    let region = map(name).unwrap();
    let unfrozen = refusing(&[Call::Protect], || region.freeze()).err().unwrap();
    assert!(matches!(unfrozen.error, RegionError::Refused { step: Step::Protect, .. }));
    assert!(unfrozen.region.freeze().is_ok(), "the region was kept");
}

#[test]
fn kernels_without_the_newer_calls_populate_by_touching() {
    let absent = [Call::KnowPopulate, Call::AllowPopulate].into_iter();
    for (call, (sharing, _, _)) in absent.flat_map(|call| every_kind().map(move |kind| (call, kind))) {
        let calls = [call, Call::Collapse, Call::StartThread];
        let map = || RegionOptions::new(8 * MIB).sharing(sharing).populate(Populate::InBackground).map();
        let mut region = refusing(&calls, map).unwrap();
        region.wait(&mut silent()).unwrap();
        assert_eq!(faults_of_a_search(&region), 0);
        let path = region.descriptor().map(|number| CString::new(format!("/proc/self/fd/{number}")).unwrap());
        if let Some(path) = path {
            // SAFETY: nobody writes to the region or changes its size.
            let opened = refusing(&calls, || unsafe { open(&path, Populate::Now, None) }).unwrap();
            assert_eq!(faults_of_a_search(&opened), 0);
        }
    }
}

#[test]
fn pages_that_must_be_touched_are_all_there_before_their_owner_has_them() {
    let all = Progress { done_bytes: 96 * MIB, total_bytes: 96 * MIB };
    for (sharing, call) in [
        (Sharing::Private, Call::KnowPopulate),
        (Sharing::Shared, Call::KnowPopulate),
        (Sharing::Private, Call::AllowPopulate),
    ] {
        let options = |populate| RegionOptions::new(96 * MIB).sharing(sharing).populate(populate).threads(2);
        let map = || options(Populate::InBackground).map();
        let region = refusing(&[call], map).unwrap();
        assert_eq!(region.progress(), all, "{sharing:?}: mapped");
        drop(region);
        let mut region = options(Populate::ByUse).map().unwrap();
        refusing(&[call], || region.populate_in_background()).unwrap();
        assert_eq!(region.progress(), all, "{sharing:?}: by use until then");
        assert_eq!(region.wait(&mut silent()), Ok(()));
    }
}

#[test]
fn what_cannot_fit_is_refused_before_a_page_is_populated() {
    let available = facts::gather(&Need { populated_bytes: 1, ..Need::default() }).memory_bytes.unwrap();
    let too_much = available + available / 2;
    for sharing in [Sharing::Private, Sharing::Shared] {
        let result = RegionOptions::new(too_much).sharing(sharing).map();
        let Err(RegionError::Limit { needed_bytes, available_bytes, .. }) = result else {
            panic!("more than there is was not refused");
        };
        assert!(needed_bytes >= too_much && available_bytes < too_much);
    }
    let zero = RegionOptions::new(0).map();
    assert!(matches!(zero, Err(RegionError::Argument(_))));
    assert!(matches!(RegionOptions::new(usize::MAX).map(), Err(RegionError::Argument(_))));
}

#[test]
fn a_locked_region_is_locked_or_the_limit_is_named() {
    match RegionOptions::new(4 * MIB).locked(true).map() {
        Ok(region) => {
            let pages = region.pages().unwrap();
            assert_eq!(pages.locked_bytes, 4 * MIB, "{pages:?}");
        }
        Err(error) => {
            let is_limit = matches!(error, RegionError::Limit { limit: Limit::LockedMemory, .. });
            assert!(is_limit, "{error}");
        }
    }
}

#[test]
fn growing_and_shrinking_keep_what_stays_and_clear_what_is_new() {
    for (sharing, wish, populate) in every_kind() {
        let options = RegionOptions::new(5 * MIB + 10).sharing(sharing).pages(wish).populate(populate);
        let mut region = options.map().unwrap();
        region.fill(7);
        region.resize(3 * MIB + 1, &mut silent()).unwrap();
        assert_eq!(region.len(), 3 * MIB + 1);
        region.resize(9 * MIB, &mut silent()).unwrap();
        let (kept, new) = region.split_at(3 * MIB + 1);
        assert!(kept.iter().all(|&byte| byte == 7), "{sharing:?} {wish:?}");
        assert!(new.iter().all(|&byte| byte == 0), "{sharing:?} {wish:?}");
        assert_eq!(region.as_ptr() as usize % (2 * MIB), 0, "aligned for huge pages still");
        assert_eq!(faults_of_a_search(&region), 0, "what is new was populated");
        assert_eq!(region.pages().unwrap().resident_bytes, 9 * MIB);
        region.resize(9 * MIB - 50, &mut silent()).unwrap();
        region.resize(9 * MIB, &mut silent()).unwrap();
        assert_eq!(region[9 * MIB - 1], 0);
    }
}

#[test]
fn what_is_grown_by_comes_in_as_many_huge_pages_as_what_is_mapped() {
    let options = |bytes| RegionOptions::new(bytes).sharing(Sharing::Shared);
    let huge_bytes = |region: &Region| region.pages().unwrap().huge_bytes;
    let is_as_huge = || {
        // It ends inside of a huge page, which stays in small ones.
        let mut region = options(5 * MIB).map().unwrap();
        region.resize(54 * MIB, &mut silent()).unwrap();
        huge_bytes(&region) + 2 * MIB >= huge_bytes(&options(54 * MIB).map().unwrap())
    };
    assert!((0..4).any(|_| is_as_huge()));
}

#[test]
fn a_region_is_aligned_by_a_page_and_for_huge_pages_once_it_is_as_large_as_one() {
    for (sharing, wish, populate) in every_kind() {
        let options = RegionOptions::new(MIB).sharing(sharing).pages(wish).populate(populate);
        let mut region = options.map().unwrap();
        assert_eq!(region.as_ptr() as usize % os::page_bytes(), 0);
        let Some(huge_bytes) = pages::transparent_page_bytes() else { return };
        region.resize(2 * huge_bytes, &mut silent()).unwrap();
        assert_eq!(region.as_ptr() as usize % huge_bytes, 0, "{sharing:?} {wish:?}");
        let mapped = RegionOptions::new(huge_bytes).sharing(sharing).pages(wish).map().unwrap();
        assert_eq!(mapped.as_ptr() as usize % huge_bytes, 0, "{sharing:?} {wish:?}");
    }
}

#[test]
fn growth_that_is_refused_changes_nothing() {
    let mut region = RegionOptions::new(MIB).sharing(Sharing::Shared).map().unwrap();
    region.fill(3);
    let grown = refusing(&[Call::Move], || region.resize(64 * MIB, &mut silent()));
    assert!(matches!(grown, Err(RegionError::Refused { step: Step::Resize, .. })));
    assert!(matches!(region.resize(1 << 50, &mut silent()), Err(RegionError::Limit { .. })));
    assert!(matches!(region.resize(0, &mut silent()), Err(RegionError::Argument(_))));
    assert!(region.len() == MIB && region.iter().all(|&byte| byte == 3));
    region.resize(2 * MIB, &mut silent()).unwrap();
}

#[test]
fn what_the_kernel_refuses_keeps_no_addresses() {
    const TIB: usize = 1 << 40;
    let options = |bytes| RegionOptions::new(bytes).populate(Populate::ByUse).checked(false);
    let mut region = options(MIB).map().unwrap();
    region.fill(3);
    // A region of two mappings: the kernel moves none that grows.
    // SAFETY: from here on the region is only read.
    unsafe { os::protect_region(region.as_ptr() as usize, MIB / 2, Access::Read) }.unwrap();
    let address_bytes = || {
        let text = fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').next().unwrap().parse::<usize>().unwrap() * os::page_bytes()
    };
    let (base, before) = (region.as_ptr(), address_bytes());
    for _ in 0..16 {
        let grown = region.resize(TIB, &mut silent());
        assert!(matches!(grown, Err(RegionError::Refused { step: Step::Resize, .. })));
        assert!(options(TIB).pages(PageWish::HugeRequired).map().is_err());
    }
    assert!(region.as_ptr() == base && region.len() == MIB && region.iter().all(|&byte| byte == 3));
    // Other tests map at the same time, but far less than that.
    assert!(address_bytes() < before + 8 * TIB);
}

#[test]
fn a_frozen_region_is_mapped_read_only_sealed_and_can_be_thawed() {
    let options = RegionOptions::new(MIB).sharing(Sharing::Shared).name(c"faultless-frozen");
    let mut region = options.map().unwrap();
    region.view_mut::<u32>()[3] = 9;
    let number = region.descriptor().unwrap();
    let frozen = region.freeze().unwrap();
    let line = |text: &str| text.lines().find(|line| line.contains("faultless-frozen")).unwrap().to_owned();
    assert!(line(&fs::read_to_string("/proc/self/maps").unwrap()).contains(" r--s "));
    let writer = fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{number}"));
    if let Ok(file) = writer {
        // Nobody makes it shorter under those who search it.
        assert!(file.set_len(1).is_err());
    }
    let mut region = frozen.thaw().unwrap();
    region[0] = 1;
    assert_eq!(region.view::<u32>()[3], 9);
    region.fill(8);
    for bytes in [2 * MIB, MIB - 1, MIB / 2 + 1, 1] {
        let resized = region.resize(bytes, &mut silent());
        assert!(matches!(resized, Err(RegionError::Refused { step: Step::Resize, .. })), "sealed");
        assert!(region.len() == MIB && region.iter().all(|&byte| byte == 8), "as it was: {bytes}");
    }
}

#[test]
fn only_a_region_that_can_change_its_size_again_is_to_be_thawed_for_it() {
    for (sharing, told) in [(Sharing::Private, "; thaw it first"), (Sharing::Shared, " keeps its size")] {
        let mut region = RegionOptions::new(100).sharing(sharing).map().unwrap();
        region.set_access(Access::Read).unwrap();
        let error = region.resize(1, &mut silent()).unwrap_err().to_string();
        assert!(error.ends_with(told), "{error}");
    }
}

#[test]
fn another_mapping_of_the_file_sees_the_data_without_faults() {
    let mut region = RegionOptions::new(4 * MIB + 17).sharing(Sharing::Shared).map().unwrap();
    region[4 * MIB + 16] = 42;
    let region = region.freeze().unwrap();
    let number = region.descriptor().unwrap();
    let path = CString::new(format!("/proc/self/fd/{number}")).unwrap();
    // SAFETY: the region is frozen and nobody thaws it.
    let opened = unsafe { [open(&path, Populate::Now, None), open_descriptor(number, Populate::Now, None)] };
    for opened in opened {
        let opened = opened.unwrap();
        assert_eq!((opened.len(), opened[4 * MIB + 16]), (4 * MIB + 17, 42));
        assert_eq!(faults_of_a_search(&opened), 0);
        assert!(matches!(opened.thaw(), Err(RegionError::Argument(_))));
    }
    // SAFETY: as above.
    let mut later = unsafe { open_descriptor(number, Populate::InBackground, None) }.unwrap();
    later.wait(&mut silent()).unwrap();
    assert_eq!(later.progress().done_bytes, later.progress().total_bytes);
    assert_eq!(faults_of_a_search(&later), 0);
    // SAFETY: as above.
    let mut by_use = unsafe { open_descriptor(number, Populate::ByUse, None) }.unwrap();
    by_use.populate(&mut silent()).unwrap();
    assert_eq!(faults_of_a_search(&by_use), 0);
    // SAFETY: there is nothing to be written to.
    let missing = unsafe { open(c"/proc/self/fd/no such", Populate::Now, None) };
    assert!(matches!(missing, Err(RegionError::Refused { step: Step::Open, .. })));
    // SAFETY: as above.
    let empty = unsafe { open(c"/dev/null", Populate::Now, None) };
    assert!(empty.is_err());
}

unsafe extern "C" {
    fn fork() -> i32;
    fn alarm(seconds: u32) -> u32;
    fn waitpid(child: i32, status: &mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

#[test]
fn a_child_forked_while_workers_held_the_locks_waits_for_none_of_them() {
    let mut region = RegionOptions::new(MIB).populate(Populate::InBackground).threads(1).map().unwrap();
    region.wait(&mut silent()).unwrap();
    region.population().keep_locks();
    // SAFETY: the child makes system calls alone until its end.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: ends a child that waits for ever.
        unsafe { alarm(20) };
        let steps = [
            region.wait(&mut silent()).is_ok(),
            region.set_access(Access::ReadWrite).is_ok(),
            region.resize(2 * MIB, &mut silent()).is_ok(),
            region.populate(&mut silent()).is_ok(),
        ];
        drop(region);
        // SAFETY: ends the child; the status tells which steps failed.
        unsafe { _exit(steps.iter().fold(0, |bits, &is_ok| bits << 1 | i32::from(!is_ok))) };
    }
    // The locks stay taken here.
    core::mem::forget(region);
    let mut status = 0;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's status");
}

#[test]
fn pages_of_a_shared_region_are_there_for_a_forked_child_too() {
    let region = RegionOptions::new(8 * MIB).sharing(Sharing::Shared).map().unwrap();
    // SAFETY: the child makes system calls alone until its end.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { _exit(i32::from(region.missing_bytes() != 0)) };
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child would ask the machine for memory that it has");
}

#[test]
fn a_region_travels_as_a_pointer() {
    let mut region = RegionOptions::new(100).map().unwrap();
    region[99] = 5;
    let raw = NonNull::new(region.into_raw()).unwrap();
    // SAFETY: the pointer is from `into_raw`, and taken back once.
    let region = unsafe { Region::from_raw(raw) };
    assert_eq!((region.len(), region[99]), (100, 5));
}

#[test]
fn a_region_that_cannot_be_frozen_is_an_error_as_any_other() {
    fn frozen<E: From<Unfrozen>>() -> Result<ReadOnlyRegion, E> {
        let region = RegionOptions::new(100).map().unwrap();
        refusing(&[Call::Protect], || Ok(region.freeze()?))
    }
    let error = frozen::<RegionError>().unwrap_err();
    assert!(matches!(error, RegionError::Refused { step: Step::Protect, .. }));
    assert_eq!(frozen::<Box<dyn std::error::Error>>().unwrap_err().to_string(), error.to_string());
    let text = format!("{:?}", frozen::<Unfrozen>().unwrap_err());
    assert!(text.contains("bytes: 100, access: ReadWrite"), "{text}");
}
