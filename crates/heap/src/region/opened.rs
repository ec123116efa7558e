//! Regions that another process made, or any file, mapped to be searched.

use super::error::{RegionError, Step};
use super::limits::Need;
use super::options::{PageWish, Populate, workers};
use super::population::{MOST_WORKERS, OnProgress};
use super::{ReadOnlyRegion, Region, State, facts, limits, silent, size};
use crate::os::{self, Access, Descriptor, Store};
use core::ffi::CStr;

/// Maps a file for reading, such as `/proc/PID/fd/NUMBER` of a process that has a shared region, and brings in its pages.
///
/// # Errors
/// [`RegionError::Refused`], [`RegionError::Argument`] for an empty file, [`RegionError::Limit`] of addresses, or
/// [`RegionError::Cancelled`].
///
/// # Safety
/// While the region exists nobody writes to the file or makes it shorter. A region that was frozen is sealed against the latter, and
/// against all writers but its owner.
pub unsafe fn open(
    path: &CStr,
    populate: Populate,
    tell: Option<OnProgress<'_>>,
) -> Result<ReadOnlyRegion, RegionError> {
    let file =
        Descriptor::open(path).map_err(|errno| RegionError::Refused { step: Step::Open, errno, bytes: 0 })?;
    map(file, populate, tell)
}

/// As [`open`], of a file that this process has open; the number stays the caller's.
///
/// # Errors
/// As [`open`].
///
/// # Safety
/// As [`open`].
pub unsafe fn open_descriptor(
    number: i32,
    populate: Populate,
    tell: Option<OnProgress<'_>>,
) -> Result<ReadOnlyRegion, RegionError> {
    let file = Descriptor::duplicate(number).map_err(|errno| RegionError::Refused {
        step: Step::Open,
        errno,
        bytes: 0,
    })?;
    map(file, populate, tell)
}

fn map(
    file: Descriptor,
    populate: Populate,
    tell: Option<OnProgress<'_>>,
) -> Result<ReadOnlyRegion, RegionError> {
    let refused = |bytes| move |errno| RegionError::Refused { step: Step::Open, errno, bytes };
    let bytes = file.bytes().map_err(refused(0))?;
    let pool_page_bytes = file.huge_page_bytes();
    let page_bytes = pool_page_bytes.unwrap_or_else(os::page_bytes);
    let mapped_bytes = match bytes.checked_next_multiple_of(page_bytes) {
        None | Some(0) => {
            return Err(RegionError::Argument("nothing to map: an empty file, a pipe or a device"));
        }
        Some(mapped_bytes) => mapped_bytes,
    };
    let align_bytes = size::align_bytes(mapped_bytes, page_bytes);
    // Its pages exist already, or can be dropped again: only addresses are at stake.
    let need = Need { mapped_bytes: mapped_bytes + align_bytes, ..Need::default() };
    limits::judge(&need, &facts::gather(&need))?;
    let base = os::map_region(mapped_bytes, align_bytes, Store::File(&file), Access::Read)
        .map_err(refused(bytes))?;
    let wish = if pool_page_bytes.is_some() { PageWish::HugeRequired } else { PageWish::HugeWanted };
    let mut region = Region::control(State {
        base,
        bytes,
        mapped_bytes,
        page_bytes,
        descriptor: Some(file),
        wish,
        populate,
        threads: 0,
        is_locked: false,
        is_checked: false,
        is_opened: true,
        access: Access::Read,
        owner: os::process_id(),
        workers: [None; MOST_WORKERS],
    })?;
    let mut silent = silent();
    region.bring_in(0, mapped_bytes, populate, workers(0, populate), tell.unwrap_or(&mut silent))?;
    Ok(ReadOnlyRegion(region))
}
