//! Regions: memory for data that is loaded once and searched by many threads, populated before the search begins.
//!
//! ```
//! use faultless_heap::region::{RegionOptions, Sharing};
//! let mut region = RegionOptions::new(1 << 20).sharing(Sharing::Shared).name(c"gallery").map()?;
//! region.view_mut::<f32>()[7] = 1.5;
//! let gallery = region.freeze()?;
//! assert_eq!(gallery.view::<f32>()[7], 1.5);
//! # Ok::<(), faultless_heap::region::RegionError>(())
//! ```
//!
//! A region is whole pages with a page without access at either end, and aligned for huge pages if it is as large as one. What is
//! known of it lies in a page of its own, so that a [`Region`] is one pointer, which the C functions hand out as it is.

mod error;
mod facts;
mod limits;
mod opened;
mod options;
mod pages;
mod plain;
mod population;
mod read_only;
mod size;

pub use error::{Limit, RegionError, Step};
pub use opened::{open, open_descriptor};
pub use options::{PageWish, Populate, RegionOptions, Sharing};
pub use pages::{Obstacle, Pages};
pub use plain::Plain;
pub use population::{OnProgress, Progress};
pub use read_only::{ReadOnlyRegion, Unfrozen};

use crate::os::{self, Access, Descriptor, Errno, Store, Worker};
use core::ffi::c_void;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{ControlFlow, Deref, DerefMut};
use core::ptr::NonNull;
use limits::Need;
use population::{MOST_WORKERS, Plan, Population};

/// Memory for a data set, readable and writable.
pub struct Region(NonNull<Control>);

/// What is known of a region, in a page of its own. Workers share `population`; `state` is the owner's.
struct Control {
    population: Population,
    state: State,
}

struct State {
    base: usize,
    /// Bytes asked for.
    bytes: usize,
    /// Bytes mapped: whole pages.
    mapped_bytes: usize,
    /// Bytes of the mapping's pages.
    page_bytes: usize,
    descriptor: Option<Descriptor>,
    wish: PageWish,
    populate: Populate,
    threads: usize,
    is_locked: bool,
    is_checked: bool,
    is_opened: bool,
    access: Access,
    /// The process that the workers are threads of.
    owner: u32,
    workers: [Option<Worker>; MOST_WORKERS],
}

/// What is said to whoever wants to change a region that was opened.
const OPENED: &str = "a region that was opened can only be read";

/// Bytes of the page that a control takes.
const CONTROL_BYTES: usize = 4096;
const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES);

// SAFETY: a region owns its memory, and its workers only bring pages in.
unsafe impl Send for Region {}
// SAFETY: what `&Region` allows is reading the contents, and the atomic parts of `population`.
unsafe impl Sync for Region {}

impl fmt::Debug for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let mut text = formatter.debug_struct("Region");
        text.field("base", &format_args!("{:#x}", state.base)).field("bytes", &state.bytes);
        text.field("access", &state.access).finish_non_exhaustive()
    }
}

/// A callback for those who want none.
fn silent() -> impl FnMut(Progress) -> ControlFlow<()> {
    |_| ControlFlow::Continue(())
}

impl Region {
    fn state(&self) -> &State {
        // SAFETY: the control lives as long as the region; only `&mut self` changes the state.
        unsafe { &(*self.0.as_ptr()).state }
    }

    fn state_mut(&mut self) -> &mut State {
        // SAFETY: the control lives as long as the region, and workers use `population` alone.
        unsafe { &mut (*self.0.as_ptr()).state }
    }

    fn population(&self) -> &Population {
        // SAFETY: the control lives as long as the region; a population is shared.
        unsafe { &(*self.0.as_ptr()).population }
    }

    /// Makes a region.
    fn map(options: RegionOptions<'_>) -> Result<Self, RegionError> {
        let shape = size::shape(&options)?;
        if options.is_checked {
            let need = size::need(&options, &shape, shape.mapped_bytes);
            limits::judge(&need, &facts::gather(&need))?;
        }
        let descriptor = match options.sharing {
            Sharing::Private => None,
            Sharing::Shared => Some(memory_file(&options, &shape)?),
        };
        let store = match (&descriptor, shape.pool_page_bytes) {
            (Some(file), _) => Store::File(file),
            (None, Some(page_bytes)) => Store::PrivateHuge(page_bytes),
            (None, None) => Store::Private,
        };
        let base = os::map_region(shape.mapped_bytes, shape.align_bytes, store, Access::ReadWrite)
            .map_err(|errno| RegionError::Refused { step: Step::Map, errno, bytes: shape.mapped_bytes })?;
        let mut region = Self::control(State {
            base,
            bytes: options.bytes,
            mapped_bytes: shape.mapped_bytes,
            page_bytes: shape.page_bytes,
            descriptor,
            wish: options.pages,
            populate: options.populate,
            threads: options.threads,
            is_locked: options.is_locked,
            is_checked: options.is_checked,
            is_opened: false,
            access: Access::ReadWrite,
            owner: os::process_id(),
            workers: [None; MOST_WORKERS],
        })?;
        region.advise(&options);
        if options.is_locked {
            region.lock()?;
        }
        let mut silent = silent();
        let workers = options.workers();
        region.bring_in(
            0,
            shape.mapped_bytes,
            options.populate,
            workers,
            options.progress.unwrap_or(&mut silent),
        )?;
        Ok(region)
    }

    /// A region of this state, which it owns from now on, also when there is no page for it.
    fn control(state: State) -> Result<Self, RegionError> {
        let Some(page) = os::map_records(CONTROL_BYTES) else {
            // SAFETY: just mapped, and given to nobody.
            unsafe { os::unmap_region(state.base, state.mapped_bytes) };
            return Err(RegionError::Refused { step: Step::Map, errno: Errno::ENOMEM, bytes: CONTROL_BYTES });
        };
        let control = core::ptr::with_exposed_provenance_mut::<Control>(page);
        // SAFETY: a fresh page of our own, large enough (asserted above) and aligned.
        unsafe { control.write(Control { population: Population::new(), state }) };
        // SAFETY: not null.
        Ok(Self(unsafe { NonNull::new_unchecked(control) }))
    }

    /// What does no harm when it is refused.
    fn advise(&mut self, options: &RegionOptions<'_>) {
        let state = self.state();
        let advice = match state.wish {
            PageWish::Small => os::HugePageAdvice::Never,
            PageWish::HugeWanted => os::HugePageAdvice::Always,
            PageWish::HugeRequired => return,
        };
        // A kernel without huge pages refuses both; `pages` tells.
        let _ = os::advise_region(state.base, state.mapped_bytes, advice);
        if let (Some(name), None) = (options.name, &state.descriptor) {
            os::name_region(state.base, state.mapped_bytes, name);
        }
    }

    fn lock(&mut self) -> Result<(), RegionError> {
        let state = self.state();
        os::lock_region(state.base, state.mapped_bytes).map_err(|errno| RegionError::Refused {
            step: Step::Lock,
            errno,
            bytes: state.mapped_bytes,
        })
    }

    /// Brings in the pages from offset `from` to the end, of which so many bytes are not there yet.
    fn bring_in(
        &mut self,
        from: usize,
        missing_bytes: usize,
        when: Populate,
        workers: usize,
        tell: OnProgress<'_>,
    ) -> Result<(), RegionError> {
        let state = self.state();
        let is_checked = state.is_checked && state.wish != PageWish::HugeRequired;
        let plan = Plan {
            from: state.base + from,
            bytes: state.mapped_bytes - from,
            access: state.access,
            collapse_bytes: self.collapse_bytes(),
            page_bytes: state.page_bytes,
            missing_bytes: if is_checked { missing_bytes } else { 0 },
            // `&mut self` lasts until then.
            is_alone: when == Populate::Now,
        };
        let control = self.0.as_ptr();
        // SAFETY: the two fields are apart: the population is shared, the list of workers is the owner's, who is `&mut self`.
        let (population, slots) = unsafe { (&(*control).population, &mut (*control).state.workers) };
        match when {
            Populate::Now => population.run(plan, &mut slots[..workers], tell),
            Populate::InBackground => {
                population.run_in_background(plan, &mut slots[..workers]);
                Ok(())
            }
            Populate::ByUse => Ok(()),
        }
    }

    /// Where huge pages are wanted and do not come when a page is populated, they are made by collapsing.
    fn collapse_bytes(&self) -> Option<usize> {
        let state = self.state();
        let is_wanted = state.wish == PageWish::HugeWanted && state.access == Access::ReadWrite;
        let is_kept_away = || {
            let obstacle = pages::obstacle(state.descriptor.is_some(), !state.is_opened);
            matches!(obstacle, Some(Obstacle::Never | Obstacle::SharedNever))
        };
        if is_wanted && is_kept_away() { pages::transparent_page_bytes() } else { None }
    }

    /// Populates what is not yet: of a region by use, or after populating was cancelled. Pages that are there stay as they are.
    ///
    /// # Errors
    /// [`RegionError::Limit`] when there is not enough memory for all of it, [`RegionError::Refused`],
    /// [`RegionError::Cancelled`].
    pub fn populate(&mut self, tell: OnProgress<'_>) -> Result<(), RegionError> {
        self.stop_workers();
        let missing_bytes = self.check_population()?;
        let workers = options::workers(self.state().threads, Populate::Now);
        self.bring_in(0, missing_bytes, Populate::Now, workers, tell)
    }

    /// As [`populate`](Self::populate), by threads of its own; without threads at once.
    ///
    /// # Errors
    /// [`RegionError::Limit`] when there is not enough memory for all of it.
    pub fn populate_in_background(&mut self) -> Result<(), RegionError> {
        self.stop_workers();
        let missing_bytes = self.check_population()?;
        self.state_mut().owner = os::process_id();
        let workers = options::workers(self.state().threads, Populate::InBackground);
        self.bring_in(0, missing_bytes, Populate::InBackground, workers, &mut silent())
    }

    /// Bytes that populating would bring in and for which there is memory.
    fn check_population(&self) -> Result<usize, RegionError> {
        let state = self.state();
        if !state.is_checked || state.wish == PageWish::HugeRequired {
            return Ok(0);
        }
        let need = Need { populated_bytes: self.missing_bytes(), ..Need::default() };
        limits::judge(&need, &facts::gather(&need))?;
        Ok(need.populated_bytes)
    }

    fn missing_bytes(&self) -> usize {
        let state = self.state();
        let there_bytes = match &state.descriptor {
            // A page that another process brought in is in none of this one's page tables.
            Some(file) => file.allocated_bytes(),
            None => self.pages().map(|pages| pages.resident_bytes),
        };
        state.mapped_bytes.saturating_sub(there_bytes.unwrap_or(0))
    }

    /// Waits for the end of populating in the background, telling the progress some twenty times a second; `Break` cancels.
    ///
    /// # Errors
    /// [`RegionError::Refused`], [`RegionError::Limit`] or [`RegionError::Cancelled`]: pages are missing, and would be brought in
    /// by use.
    pub fn wait(&mut self, tell: OnProgress<'_>) -> Result<(), RegionError> {
        self.forget_workers_of_parent();
        let control = self.0.as_ptr();
        // SAFETY: as in `bring_in`.
        let (population, slots) = unsafe { (&(*control).population, &mut (*control).state.workers) };
        population.join(slots, tell)
    }

    /// How far populating has come; nothing of nothing for a region by use.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.population().progress()
    }

    /// Lets populating in the background end soon; [`wait`](Self::wait) tells when. From any thread.
    pub fn cancel(&self) {
        self.population().cancel();
    }

    /// Threads do not outlive a fork: the child has none to wait for.
    fn forget_workers_of_parent(&mut self) {
        let process = os::process_id();
        if self.state().owner != process {
            // SAFETY: another process than the workers', and locks are taken with `&mut self` or by workers, of which it has started none.
            unsafe { self.population().forget_workers() };
            let state = self.state_mut();
            state.owner = process;
            state.workers.fill(None);
        }
    }

    fn stop_workers(&mut self) {
        self.cancel();
        // What came of it is told by the next call that populates.
        let _ = self.wait(&mut silent());
    }

    /// Grows or shrinks the region; it may move. What is new reads as zero and is populated, except in a region by use.
    ///
    /// # Errors
    /// [`RegionError`]: the region is as it was, unless populating what it has grown by was cancelled, refused, or ended because others took
    /// the memory: its length tells.
    pub fn resize(&mut self, bytes: usize, tell: OnProgress<'_>) -> Result<(), RegionError> {
        size::resize(self, bytes, tell)
    }

    /// Changes the access; for the C functions, which do not have a type for each.
    ///
    /// # Errors
    /// [`RegionError::Refused`].
    #[doc(hidden)]
    pub fn set_access(&mut self, access: Access) -> Result<(), RegionError> {
        if self.state().is_opened && access == Access::ReadWrite {
            return Err(RegionError::Argument(OPENED));
        }
        // Pages that were not brought in are later, by use.
        let _ = self.wait(&mut silent());
        let state = self.state_mut();
        // SAFETY: the region is ours, and `&mut self` says that nobody writes to it at the moment.
        unsafe { os::protect_region(state.base, state.mapped_bytes, access) }.map_err(|errno| {
            RegionError::Refused { step: Step::Protect, errno, bytes: state.mapped_bytes }
        })?;
        state.access = access;
        if let (Access::Read, Some(file), false) = (access, &state.descriptor, state.is_opened) {
            // A kernel before 5.1 cannot; this process's own mapping is read-only all the same.
            file.seal();
        }
        Ok(())
    }

    /// What pages the kernel gave; `None` where `/proc` is not mounted. Looks at the whole process: not for a fast path.
    #[must_use]
    pub fn pages(&self) -> Option<Pages> {
        let state = self.state();
        let obstacle = match state.wish {
            PageWish::HugeWanted => pages::obstacle(state.descriptor.is_some(), !state.is_opened),
            PageWish::Small | PageWish::HugeRequired => None,
        };
        pages::read(state.base, state.mapped_bytes, state.page_bytes, obstacle)
    }

    /// The number of a shared region's file: to be passed to another process (`SCM_RIGHTS`, inheritance, `/proc/PID/fd/NUMBER`)
    /// that maps it with [`open`]. It stays ours. Whoever maps it for writing before it is frozen must not write while this process holds
    /// references into the region.
    #[must_use]
    pub fn descriptor(&self) -> Option<i32> {
        self.state().descriptor.as_ref().map(Descriptor::number)
    }

    /// The contents as values: as many as fit, without the bytes left over at the end. None of a type that has no size, or is aligned to
    /// more than the region's beginning, which is a multiple of 4,096.
    #[must_use]
    pub fn view<T: Plain>(&self) -> &[T] {
        plain::view(self)
    }

    /// As [`view`](Self::view), to be written to.
    #[must_use]
    pub fn view_mut<T: Plain>(&mut self) -> &mut [T] {
        plain::view_mut(self)
    }

    /// Whether it may be written to.
    #[doc(hidden)]
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.state().access == Access::ReadWrite
    }

    /// The region as a pointer to what is known of it, for C; [`from_raw`](Self::from_raw) takes it back.
    #[must_use]
    pub fn into_raw(self) -> *mut c_void {
        ManuallyDrop::new(self).0.as_ptr().cast()
    }

    /// The region of a pointer.
    ///
    /// # Safety
    /// The pointer came from [`into_raw`](Self::into_raw) and was not taken back yet. If it came from [`ReadOnlyRegion::into_raw`], the
    /// result is used as a [`ReadOnlyRegion`] is: nobody writes to its contents.
    #[must_use]
    pub unsafe fn from_raw(raw: NonNull<c_void>) -> Self {
        Self(raw.cast())
    }
}

/// The file of a shared region, as long as it is to be.
fn memory_file(options: &RegionOptions<'_>, shape: &size::Shape) -> Result<Descriptor, RegionError> {
    let name = options.name.unwrap_or(c"faultless-region");
    let refused = |errno| RegionError::Refused { step: Step::File, errno, bytes: options.bytes };
    let file = Descriptor::create_memory(name, shape.pool_page_bytes).map_err(refused)?;
    file.resize(shape.file_bytes(options.bytes)).map_err(refused)?;
    Ok(file)
}

impl Drop for Region {
    fn drop(&mut self) {
        self.stop_workers();
        let control = self.0.as_ptr();
        // SAFETY: no worker is left and nobody else has the region, so its memory and its control are given back; the control
        // is not used afterwards.
        unsafe {
            os::unmap_region((*control).state.base, (*control).state.mapped_bytes);
            control.drop_in_place();
            os::unmap(control as usize, CONTROL_BYTES);
        }
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let state = self.state();
        let base = core::ptr::with_exposed_provenance(state.base);
        // SAFETY: `bytes` from the base on are mapped and readable as long as the region lives, and read as zero or what was written.
        unsafe { core::slice::from_raw_parts(base, state.bytes) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        let state = self.state();
        let base = core::ptr::with_exposed_provenance_mut(state.base);
        // SAFETY: as in `deref`; a `Region` is writable except in the hands of C, and `&mut self` is the only use.
        unsafe { core::slice::from_raw_parts_mut(base, state.bytes) }
    }
}

#[cfg(test)]
mod tests;
