//! How large a region is in pages, what it needs of the limits, and how it becomes larger or smaller.

use super::error::{RegionError, Step};
use super::limits::{self, Need};
use super::options::{PageWish, Populate, RegionOptions, Sharing, workers};
use super::population::OnProgress;
use super::{OPENED, Region, facts, pages, silent};
use crate::os::{self, Access, Descriptor, Errno, Store};

/// A region in pages.
pub struct Shape {
    /// Bytes mapped: whole pages.
    pub mapped_bytes: usize,
    /// Bytes of the mapping's pages.
    pub page_bytes: usize,
    /// The region begins at a multiple of this.
    pub align_bytes: usize,
    /// Bytes of the pool's pages, for required huge pages.
    pub pool_page_bytes: Option<usize>,
}

impl Shape {
    /// Length of the file of so many bytes: exact, except that files of the pool have whole pages.
    pub fn file_bytes(&self, bytes: usize) -> usize {
        if self.pool_page_bytes.is_some() { self.mapped_bytes } else { bytes }
    }
}

/// Longest name of a memory file; see memfd_create(2).
const NAME_BYTES: usize = 249;

/// Decides the pages.
///
/// # Errors
/// [`RegionError::Argument`].
pub fn shape(options: &RegionOptions<'_>) -> Result<Shape, RegionError> {
    let small_bytes = os::page_bytes();
    let pool_page_bytes = match (options.pages, options.huge_page_bytes) {
        (PageWish::HugeRequired, None) => Some(facts::huge_page_bytes().ok_or(RegionError::Argument(
            "this kernel has no huge pages that could be required; want them, or use small pages",
        ))?),
        (PageWish::HugeRequired, Some(bytes)) => {
            let is_size = bytes.is_power_of_two() && bytes > small_bytes;
            let advice = "huge pages have a power of two of bytes; see /sys/kernel/mm/hugepages for those of this kernel";
            Some(if is_size { bytes } else { return Err(RegionError::Argument(advice)) })
        }
        (PageWish::Small | PageWish::HugeWanted, None) => None,
        (PageWish::Small | PageWish::HugeWanted, Some(_)) => {
            return Err(RegionError::Argument("a size of huge pages is for those that are required"));
        }
    };
    if options.sharing == Sharing::Shared && options.name.is_some_and(|name| name.count_bytes() > NAME_BYTES)
    {
        return Err(RegionError::Argument("the name of a shared region has at most 249 bytes"));
    }
    if options.progress.is_some() && options.populate != Populate::Now {
        return Err(RegionError::Argument(
            "a progress function is called while populating now; ask for the progress of the background, or wait for it",
        ));
    }
    let page_bytes = pool_page_bytes.unwrap_or(small_bytes);
    let mapped_bytes = whole_pages(options.bytes, page_bytes)?;
    let align_bytes = align_bytes(mapped_bytes, page_bytes);
    Ok(Shape { mapped_bytes, page_bytes, align_bytes, pool_page_bytes })
}

/// A region of so many bytes begins at a multiple of this: of a huge page once it is as large as one.
pub fn align_bytes(mapped_bytes: usize, page_bytes: usize) -> usize {
    let huge_bytes = pages::transparent_page_bytes().filter(|&huge| mapped_bytes >= huge);
    huge_bytes.unwrap_or(page_bytes).max(page_bytes)
}

fn whole_pages(bytes: usize, page_bytes: usize) -> Result<usize, RegionError> {
    match bytes.checked_next_multiple_of(page_bytes) {
        Some(mapped) if mapped > 0 && mapped <= isize::MAX as usize / 2 => Ok(mapped),
        Some(0) => Err(RegionError::Argument("a region has at least one byte")),
        _ => Err(RegionError::Argument("a region has less than 4 EiB")),
    }
}

/// What a region needs of the limits for `more_bytes` mapped bytes.
pub fn need(options: &RegionOptions<'_>, shape: &Shape, more_bytes: usize) -> Need {
    let is_private = options.sharing == Sharing::Private;
    Need {
        // The address is aligned by taking more than is kept.
        mapped_bytes: more_bytes + shape.align_bytes,
        private_bytes: if is_private { more_bytes } else { 0 },
        file_bytes: if is_private { 0 } else { shape.file_bytes(options.bytes) },
        committed_bytes: more_bytes,
        populated_bytes: if options.populate == Populate::ByUse { 0 } else { more_bytes },
        locked_bytes: if options.is_locked { more_bytes } else { 0 },
        pool_page_bytes: shape.pool_page_bytes,
    }
    .of_pool(more_bytes)
}

impl Need {
    /// Addresses that are not kept take nothing from the pool.
    fn of_pool(mut self, more_bytes: usize) -> Self {
        if self.pool_page_bytes.is_some() {
            self.mapped_bytes = more_bytes;
        }
        self
    }
}

/// Grows or shrinks a region.
///
/// # Errors
/// As [`Region::resize`].
pub fn resize(region: &mut Region, bytes: usize, tell: OnProgress<'_>) -> Result<(), RegionError> {
    // A region whose populating failed or was cancelled may be resized, too.
    let _ = region.wait(&mut silent());
    let state = region.state();
    if state.is_opened {
        return Err(RegionError::Argument(OPENED));
    }
    if state.access != Access::ReadWrite {
        let is_sealed = state.descriptor.as_ref().is_some_and(Descriptor::is_sealed_against_shrinking);
        return Err(RegionError::Argument(if is_sealed {
            "a shared region that was frozen keeps its size"
        } else {
            "only a writable region changes its size; thaw it first"
        }));
    }
    let mapped_bytes = whole_pages(bytes, state.page_bytes)?;
    let (old_bytes, populate) = (state.mapped_bytes, state.populate);
    match mapped_bytes {
        new if new < old_bytes => shrink(region, bytes, new),
        new if new > old_bytes => {
            grow(region, bytes, new)?;
            let when = if populate == Populate::ByUse { Populate::ByUse } else { Populate::Now };
            let workers = workers(region.state().threads, Populate::Now);
            region.bring_in(old_bytes, new - old_bytes, when, workers, tell)
        }
        same => {
            resize_file(region, bytes, same)?;
            clear_end(region, bytes);
            region.state_mut().bytes = bytes;
            Ok(())
        }
    }
}

fn resize_file(region: &Region, bytes: usize, mapped_bytes: usize) -> Result<(), RegionError> {
    let state = region.state();
    let Some(file) = &state.descriptor else { return Ok(()) };
    let is_pool = state.wish == PageWish::HugeRequired;
    let (old_bytes, bytes) = if is_pool { (state.mapped_bytes, mapped_bytes) } else { (state.bytes, bytes) };
    if state.is_checked && bytes > old_bytes {
        let need = Need { file_bytes: bytes, ..Need::default() };
        limits::judge(&need, &facts::gather(&need))?;
    }
    file.resize(bytes).map_err(|errno| RegionError::Refused { step: Step::Resize, errno, bytes })
}

/// What lies behind the end must read as zero when the region grows over it.
fn clear_end(region: &mut Region, bytes: usize) {
    if let Some(end) = region.get_mut(bytes..) {
        end.fill(0);
    }
}

fn shrink(region: &mut Region, bytes: usize, mapped_bytes: usize) -> Result<(), RegionError> {
    let state = region.state_mut();
    let refused = |errno| RegionError::Refused { step: Step::Resize, errno, bytes };
    // The file becomes smaller last, so what keeps it from that is looked for before anything is given up.
    if state.descriptor.as_ref().is_some_and(Descriptor::is_sealed_against_shrinking) {
        return Err(refused(Errno::EPERM));
    }
    // SAFETY: the region is ours, and `&mut` says that nobody refers to its contents.
    unsafe { os::shrink_region(state.base, state.mapped_bytes, mapped_bytes) }.map_err(refused)?;
    // The last page that stays was all of the region's.
    (state.bytes, state.mapped_bytes) = (mapped_bytes, mapped_bytes);
    clear_end(region, bytes);
    region.state_mut().bytes = bytes;
    resize_file(region, bytes, mapped_bytes)
}

fn grow(region: &mut Region, bytes: usize, mapped_bytes: usize) -> Result<(), RegionError> {
    let state = region.state();
    let is_pool = state.wish == PageWish::HugeRequired;
    let align_bytes = align_bytes(mapped_bytes, state.page_bytes);
    if is_pool && state.descriptor.is_none() {
        return Err(RegionError::Argument(
            "the kernel does not grow private memory of required huge pages; map the region shared",
        ));
    }
    if state.is_checked {
        let more_bytes = mapped_bytes - state.mapped_bytes;
        let need = Need {
            // The new place with a page at either end, and while it is moved there the kernel counts what is new twice.
            mapped_bytes: if is_pool {
                more_bytes
            } else {
                mapped_bytes + align_bytes.max(more_bytes) + 2 * os::page_bytes()
            },
            private_bytes: if state.descriptor.is_none() { more_bytes } else { 0 },
            file_bytes: 0,
            committed_bytes: more_bytes,
            populated_bytes: if state.populate == Populate::ByUse { 0 } else { more_bytes },
            locked_bytes: if state.is_locked { more_bytes } else { 0 },
            pool_page_bytes: is_pool.then_some(state.page_bytes),
        };
        limits::judge(&need, &facts::gather(&need))?;
    }
    let (old_bytes, old_mapped_bytes) = (state.bytes, state.mapped_bytes);
    resize_file(region, bytes, mapped_bytes)?;
    let state = region.state();
    let moved = match &state.descriptor {
        // The kernel does not grow such a mapping; its file is mapped once more instead.
        Some(file) if is_pool => {
            os::map_region(mapped_bytes, align_bytes, Store::File(file), Access::ReadWrite).inspect(|_| {
                // SAFETY: the region is ours, and `&mut` says that nobody refers to its contents.
                unsafe { os::unmap_region(state.base, state.mapped_bytes) }
            })
        }
        // SAFETY: as above.
        _ => unsafe { os::grow_region(state.base, state.mapped_bytes, mapped_bytes, align_bytes) },
    };
    match moved {
        Ok(base) => {
            let state = region.state_mut();
            (state.base, state.bytes, state.mapped_bytes) = (base, bytes, mapped_bytes);
            if is_pool && state.is_locked {
                region.lock()?;
            }
            Ok(())
        }
        Err(errno) => {
            // Nothing has been written beyond the old end.
            let _ = resize_file(region, old_bytes, old_mapped_bytes);
            Err(RegionError::Refused { step: Step::Resize, errno, bytes })
        }
    }
}
