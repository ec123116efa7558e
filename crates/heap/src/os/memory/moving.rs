//! Pages are moved by their page tables, mapping by mapping.

use super::super::advice::announce;
use super::super::errno::Errno;
use super::super::file::read;
use super::super::page_bytes;
use super::super::syscall::flag::PROT_READ_WRITE;
use super::super::syscall::{number, syscall};
use super::super::thread::{SIG_BLOCK, change_signals};
use super::{
    Call, MADV_DONTNEED, MAP_FIXED_NOREPLACE, advise, discard_unless_locked, map, map_records, refused, unmap,
};
use crate::granule::GRANULE_BYTES;
use core::sync::atomic::{AtomicU8, Ordering};

const MREMAP_MOVE_DONTUNMAP: usize = 1 | 4;
const MREMAP_MOVE_FIXED_DONTUNMAP: usize = MREMAP_MOVE_DONTUNMAP | 2;
/// Of so many mappings [`move_pages`] looks only once where they end.
const PARTS_KNOWN: usize = 16;

/// How [`move_pages`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The pages are at the target, the source reads as zero.
    Done,
    /// Refused; source and target are as they were (the target may read as zero).
    Refused,
    /// Refused, and the target is no longer mapped: it must not be used again.
    TargetLost,
}

/// Moves the pages of `from..from + bytes` to `to` without copying them, mapping by mapping, since the kernel moves several at once only
/// from Linux 6.17 on, and may stop after some (`vm.max_map_count`). Refused where the source is more than `left` mappings, which never
/// join again (it is counted down by those that are moved), and where memory is locked: a program that locks all of its memory relies on
/// that (`mlockall`), and what stays at the source would not be locked any more. Returns how many bytes were moved, from the beginning
/// on, and what became of the rest.
///
/// # Safety
/// Both ranges are committed and do not overlap, and nobody needs the target's contents.
pub unsafe fn move_pages(from: usize, to: usize, bytes: usize, left: &mut usize) -> (usize, Moved) {
    if !moves_well() {
        return (0, Moved::Refused);
    }
    // SAFETY: of the caller's source.
    let part_at = |done: usize| unsafe { first_mapping(from + done, bytes - done) };
    let (mut parts, mut mappings, mut seen) = ([0; PARTS_KNOWN], 0, 0);
    while seen < bytes && mappings < *left {
        let part = part_at(seen);
        if let Some(known) = parts.get_mut(mappings) {
            *known = part;
        }
        (mappings, seen) = (mappings + 1, seen + part);
    }
    if seen < bytes {
        return (0, Moved::Refused);
    }
    *left -= mappings;
    let mut done = 0;
    for place in 0..mappings {
        let part = parts.get(place).copied().unwrap_or_else(|| part_at(done));
        // SAFETY: the caller's contract, of a part.
        let end = unsafe { move_mapping(from + done, to + done, part) };
        if end != Moved::Done {
            return (done, end);
        }
        done += part;
    }
    (bytes, Moved::Done)
}

/// How much of a range, from its beginning on, lies in one mapping, in bytes: by halves. Mostly it ends with a granule.
///
/// # Safety
/// The range is committed, and the caller's own.
unsafe fn first_mapping(address: usize, bytes: usize) -> usize {
    let page = page_bytes();
    // To be longer in its place is refused, for other memory of ours follows; that it lies in one mapping is looked at first.
    let is_one = |bytes: usize| {
        // SAFETY: it stays as it is; what is mapped behind it, should nothing be there, is nobody's.
        unsafe {
            let answer = Errno::check(syscall(number::MREMAP, [address, bytes, bytes + page, 0, 0, 0]));
            if answer == Ok(address) {
                unmap(address + bytes, page);
            }
            answer != Err(Errno::EFAULT)
        }
    };
    if is_one(bytes) {
        return bytes;
    }
    let (mut one, mut several) = (0, bytes);
    for unit in [GRANULE_BYTES, page] {
        while several - one > unit {
            let half = one + ((several - one) / 2).next_multiple_of(unit);
            if is_one(half) { one = half } else { several = half }
        }
        if one > 0 && !is_one(one + page) {
            break;
        }
        one = one.max(page);
    }
    one
}

/// Moves the pages of a range in one mapping; all or none of them.
///
/// # Safety
/// As for [`move_pages`].
unsafe fn move_mapping(from: usize, to: usize, bytes: usize) -> Moved {
    if let Some(end) = refusal() {
        return end;
    }
    // SAFETY: nobody needs the target's contents.
    if unsafe { !discard_unless_locked(to) } {
        return Moved::Refused;
    }
    if refused(Call::MoveLate) {
        // SAFETY: the target is the caller's, and the kernel unmaps it, too, before it refuses.
        unsafe { unmap(to, bytes) };
        return keep_target(to, bytes);
    }
    // SAFETY: as above.
    unsafe { announce(to, bytes) };
    let args = [from, bytes, bytes, MREMAP_MOVE_FIXED_DONTUNMAP, to, 0];
    // SAFETY: the caller owns both ranges; DONTUNMAP keeps the source mapped.
    match Errno::check(unsafe { syscall(number::MREMAP, args) }) {
        Ok(place) if place == to => {
            // SAFETY: what the source held is at the target.
            unsafe { announce(from, bytes) };
            Moved::Done
        }
        // Flags are looked at first. Unknown before Linux 5.7 and to valgrind, which may not know MAP_FIXED_NOREPLACE either; or a
        // filter refuses.
        Err(Errno::EINVAL | Errno::EPERM | Errno::ENOSYS) => Moved::Refused,
        // The kernel unmaps the target before it looks at limits and at the source's mapping.
        _ => keep_target(to, bytes),
    }
}

/// Maps the target of a move again that is refused and has unmapped it. Whoever maps there in between keeps it.
fn keep_target(to: usize, bytes: usize) -> Moved {
    match map(to, bytes, PROT_READ_WRITE, MAP_FIXED_NOREPLACE) {
        Some(got) if got == to => Moved::Refused,
        Some(elsewhere) => {
            // SAFETY: just mapped by us, and given to nobody.
            unsafe { unmap(elsewhere, bytes) };
            Moved::TargetLost
        }
        // A limit, or a mapping of somebody else's.
        None => Moved::TargetLost,
    }
}

/// How a move ends that fault injection makes fail.
fn refusal() -> Option<Moved> {
    let end = match (refused(Call::Move), refused(Call::KeepTarget)) {
        (true, _) => Moved::Refused,
        (_, true) => Moved::TargetLost,
        _ => return None,
    };
    #[cfg(test)]
    if super::MOVES_BEFORE.get() > 0 {
        super::MOVES_BEFORE.set(super::MOVES_BEFORE.get() - 1);
        return None;
    }
    Some(end)
}

/// What is known of moves; [`UNTRIED`] until the first.
static MOVES: AtomicU8 = AtomicU8::new(UNTRIED);
const UNTRIED: u8 = 0;
const MOVES_WELL: u8 = 1;
const MOVES_BADLY: u8 = 2;

/// Whether what a move leaves can be written to, and what it brought can be given back and [renewed](super::renew). Of qemu-user (7.2)
/// neither holds: it forgets that the source is mapped, and then says of the target that it gave it back and does nothing.
fn moves_well() -> bool {
    // ORDERING: Relaxed; what is known of the kernel, and whoever finds out finds the same.
    let mut known = MOVES.load(Ordering::Relaxed);
    if known == UNTRIED {
        known = try_a_move();
        MOVES.store(known, Ordering::Relaxed);
    }
    known == MOVES_WELL
}

/// Whether the kernel promises no more memory than it has; nothing is moved then. To be called while the process may open files: later a
/// sandbox may kill who does.
pub fn note_overcommit() -> bool {
    if refused(Call::Overcommit) {
        return true;
    }
    let is_kept = keeps_to_commit(read(c"/proc/sys/vm/overcommit_memory", &mut [0; 8]));
    if is_kept {
        // ORDERING: Relaxed, as in `moves_well`. Else nothing is written: most processes move nothing, and save the page.
        MOVES.store(MOVES_BADLY, Ordering::Relaxed);
    }
    is_kept
}

/// Whether this value of `vm.overcommit_memory` says that the kernel promises no more than it has. Where a filter refuses to tell, it is
/// taken for the usual one.
fn keeps_to_commit(overcommit: Option<&[u8]>) -> bool {
    overcommit.is_some_and(|value| value.starts_with(b"2"))
}

/// Moves a page of its own; [`UNTRIED`]: a limit, locked memory or a filter is in the way.
#[cold]
fn try_a_move() -> u8 {
    let page = page_bytes();
    let Some(from) = map_records(page) else { return UNTRIED };
    // SAFETY: the first page was just mapped by us, the kernel finds a place for the second, and both are nobody else's; volatile, for
    // the kernel changes them.
    unsafe {
        let mut known = UNTRIED;
        let args = [from, page, page, MREMAP_MOVE_DONTUNMAP, 0, 0];
        if let Ok(to) = Errno::check(syscall(number::MREMAP, args)) {
            let target = core::ptr::with_exposed_provenance_mut::<u8>(to);
            target.write_volatile(1);
            // The kernel writes the mask of signals there, which does not change; it would say that it cannot, where we would end.
            let mask = core::ptr::with_exposed_provenance_mut(from);
            let is_left = change_signals(SIG_BLOCK, core::ptr::null(), mask) != Err(Errno::EFAULT);
            if advise(to, page, MADV_DONTNEED).is_ok() {
                known = if is_left && target.read_volatile() == 0 { MOVES_WELL } else { MOVES_BADLY };
            }
            unmap(to, page);
        }
        unmap(from, page);
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernel_that_promises_no_more_than_it_has_keeps_to_its_commit_limit() {
        let values = [Some(b"0\n".as_slice()), Some(b"1\n"), Some(b"2\n"), None];
        assert_eq!(values.map(keeps_to_commit), [false, false, true, false]);
    }

    #[test]
    fn nothing_is_moved_to_a_locked_target() {
        let page = page_bytes();
        let [from, to] = [0, 1].map(|_| map_records(page).unwrap());
        if super::super::super::lock_region(to, page).is_ok() {
            // SAFETY: the test's own pages, which nobody refers to.
            assert_eq!(unsafe { move_pages(from, to, page, &mut 1) }, (0, Moved::Refused));
        } else {
            faultless_skipped::skipped("a limit refuses to lock a page");
        }
        // SAFETY: as above.
        [from, to].into_iter().for_each(|start| unsafe { unmap(start, page) });
    }
}
