//! Whether a region fits, decided before a page of it is populated: facts in, verdict out.
//!
//! The kernel grants nearly every mapping and ends a process, not always this one, when the pages are wanted. So each limit
//! that a populated region can run into is compared with what the region needs of it.

use super::error::{Limit, RegionError};

/// What a region, or the part it grows by, needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Addresses.
    pub mapped_bytes: usize,
    /// Of these, private writable memory.
    pub private_bytes: usize,
    /// Size of its file in memory.
    pub file_bytes: usize,
    /// Memory that counts towards the commit limit: private writable memory, pages of files in memory.
    pub committed_bytes: usize,
    /// Pages that will be populated.
    pub populated_bytes: usize,
    /// Pages that will be locked.
    pub locked_bytes: usize,
    /// Pages from the kernel's pool: bytes of one of them; memory of the pool is set aside already.
    pub pool_page_bytes: Option<usize>,
}

/// A limit and what is used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The limit.
    pub limit_bytes: usize,
    /// What is used.
    pub used_bytes: usize,
}

impl Room {
    /// What is left.
    #[must_use]
    pub fn available_bytes(self) -> usize {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }
}

/// What the process and the machine have left; `None`: no such limit, or not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Memory that the machine can give without swapping.
    pub memory_bytes: Option<usize>,
    /// Commit limit, where the kernel keeps to it.
    pub commit: Option<Room>,
    /// What the tightest cgroup leaves, page cache that it can drop not counted as used; and which version it is of.
    pub cgroup: Option<(Limit, usize)>,
    /// Locked memory; `None` also for a process that may lock all.
    pub locked: Option<Room>,
    /// Addresses.
    pub addresses: Option<Room>,
    /// Private writable memory.
    pub data: Option<Room>,
    /// Largest file.
    pub file_bytes: Option<usize>,
    /// Free huge pages of the size wanted, in bytes, with those that the kernel may add.
    pub pool_bytes: Option<usize>,
}

/// Page tables of small pages: 8 bytes for each 4 KiB.
const PAGE_TABLE_PART: usize = 512;

/// Compares what a region needs with what there is.
///
/// # Errors
/// [`RegionError::Limit`]: the first limit that is too low.
pub fn judge(need: &Need, facts: &Facts) -> Result<(), RegionError> {
    let holds = |limit: Limit, needed_bytes: usize, available_bytes: Option<usize>| match available_bytes {
        Some(available_bytes) if needed_bytes > available_bytes => {
            Err(RegionError::Limit { limit, needed_bytes, available_bytes })
        }
        _ => Ok(()),
    };
    let left = |room: Option<Room>| room.map(Room::available_bytes);
    holds(Limit::AddressSpace, need.mapped_bytes, left(facts.addresses))?;
    holds(Limit::Data, need.private_bytes, left(facts.data))?;
    holds(Limit::FileSize, need.file_bytes, facts.file_bytes)?;
    holds(Limit::LockedMemory, need.locked_bytes, left(facts.locked))?;
    if let Some(page_bytes) = need.pool_page_bytes {
        // The pool is outside of the machine's free memory, the commit limit and the cgroup's memory.
        return holds(Limit::HugePagePool { page_bytes }, need.mapped_bytes, facts.pool_bytes);
    }
    holds(Limit::Commit, need.committed_bytes, left(facts.commit))?;
    let populated_bytes = need.populated_bytes + need.populated_bytes / PAGE_TABLE_PART;
    if let Some((limit, available_bytes)) = facts.cgroup {
        holds(limit, populated_bytes, Some(available_bytes))?;
    }
    holds(Limit::Memory, populated_bytes, facts.memory_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    fn populated(bytes: usize) -> Need {
        Need {
            mapped_bytes: bytes,
            private_bytes: bytes,
            committed_bytes: bytes,
            populated_bytes: bytes,
            ..Need::default()
        }
    }

    fn refused_by(need: &Need, facts: &Facts) -> Option<Limit> {
        match judge(need, facts) {
            Err(RegionError::Limit { limit, .. }) => Some(limit),
            _ => None,
        }
    }

    fn room(limit_bytes: usize, used_bytes: usize) -> Option<Room> {
        Some(Room { limit_bytes, used_bytes })
    }

    #[test]
    fn what_is_not_known_refuses_nothing() {
        assert_eq!(judge(&populated(usize::MAX / 4), &Facts::default()), Ok(()));
    }

    #[test]
    fn each_limit_refuses_what_goes_beyond_it_and_nothing_less() {
        let of =
            |facts: Facts| (refused_by(&populated(GIB), &facts), refused_by(&populated(GIB / 2), &facts));
        let memory_bytes = Some(GIB - 1);
        assert_eq!(of(Facts { memory_bytes, ..Facts::default() }), (Some(Limit::Memory), None));
        let addresses = room(2 * GIB, GIB + 1);
        assert_eq!(of(Facts { addresses, ..Facts::default() }), (Some(Limit::AddressSpace), None));
        assert_eq!(of(Facts { data: addresses, ..Facts::default() }), (Some(Limit::Data), None));
        assert_eq!(of(Facts { commit: addresses, ..Facts::default() }), (Some(Limit::Commit), None));
        let cgroup = Some((Limit::CgroupV1, GIB));
        assert_eq!(
            of(Facts { cgroup, ..Facts::default() }),
            (Some(Limit::CgroupV1), None),
            "page tables count"
        );
    }

    #[test]
    fn memory_is_no_limit_for_a_region_populated_by_use() {
        let need = Need { populated_bytes: 0, ..populated(GIB) };
        assert_eq!(judge(&need, &Facts { memory_bytes: Some(0), ..Facts::default() }), Ok(()));
    }

    #[test]
    fn locked_memory_is_counted_with_what_is_locked_already() {
        let need = Need { locked_bytes: 10, ..Need::default() };
        assert_eq!(judge(&need, &Facts { locked: room(20, 10), ..Facts::default() }), Ok(()));
        let expected =
            RegionError::Limit { limit: Limit::LockedMemory, needed_bytes: 10, available_bytes: 9 };
        assert_eq!(judge(&need, &Facts { locked: room(20, 11), ..Facts::default() }), Err(expected));
        assert!(
            judge(&need, &Facts { locked: room(20, 30), ..Facts::default() }).is_err(),
            "over the limit already"
        );
    }

    #[test]
    fn pages_of_the_pool_ask_the_pool_alone() {
        let need = Need { pool_page_bytes: Some(2 << 20), ..populated(GIB) };
        let facts = Facts { memory_bytes: Some(0), pool_bytes: Some(GIB), ..Facts::default() };
        assert_eq!(judge(&need, &facts), Ok(()));
        let facts = Facts { pool_bytes: Some(GIB - (2 << 20)), ..facts };
        assert_eq!(refused_by(&need, &facts), Some(Limit::HugePagePool { page_bytes: 2 << 20 }));
    }

    #[test]
    fn a_file_in_memory_is_held_to_the_limit_on_files() {
        let need = Need { private_bytes: 0, file_bytes: GIB, ..populated(GIB) };
        assert_eq!(refused_by(&need, &Facts { data: room(10, 10), ..Facts::default() }), None);
        assert_eq!(
            refused_by(&need, &Facts { file_bytes: Some(1024), ..Facts::default() }),
            Some(Limit::FileSize)
        );
        assert_eq!(
            refused_by(&need, &Facts { commit: room(10, 10), ..Facts::default() }),
            Some(Limit::Commit)
        );
    }
}
