//! What a region is to be like.

use super::Region;
use super::error::RegionError;
use super::population::{MOST_WORKERS, OnProgress};
use crate::os;
use core::ffi::CStr;

/// Who sees a region's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// This process; a forked child gets a copy when either writes.
    #[default]
    Private,
    /// Forked children, and every process that is given the region's file.
    Shared,
}

/// What pages a region is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageWish {
    /// Small pages only.
    Small,
    /// Huge pages where the kernel has them, else small ones; [`Region::pages`](super::Region::pages) tells what came of it.
    #[default]
    HugeWanted,
    /// Huge pages of the kernel's pool (hugetlb), or no region.
    HugeRequired,
}

/// When a region's pages are brought in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Populate {
    /// Before the region is handed out.
    #[default]
    Now,
    /// By threads of its own, while the program loads its data. Before Linux 5.14, or where a filter refuses `madvise`, as `Now`: there
    /// pages must be touched, which is not to happen beside who writes to them.
    InBackground,
    /// Page by page, by whoever touches one first.
    ByUse,
}

/// The options of a region; [`map`](RegionOptions::map) makes it.
pub struct RegionOptions<'a> {
    pub(super) bytes: usize,
    pub(super) sharing: Sharing,
    pub(super) name: Option<&'a CStr>,
    pub(super) pages: PageWish,
    pub(super) huge_page_bytes: Option<usize>,
    pub(super) populate: Populate,
    pub(super) threads: usize,
    pub(super) is_locked: bool,
    pub(super) is_checked: bool,
    pub(super) progress: Option<OnProgress<'a>>,
}

impl<'a> RegionOptions<'a> {
    /// A private region of `bytes`, of huge pages where possible, populated before it is handed out.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes,
            sharing: Sharing::default(),
            name: None,
            pages: PageWish::default(),
            huge_page_bytes: None,
            populate: Populate::default(),
            threads: 0,
            is_locked: false,
            is_checked: true,
            progress: None,
        }
    }

    /// Who sees the contents.
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// A name in `/proc/PID/maps`: of the memory file of a shared region; of a private one where the kernel has such names.
    #[must_use]
    pub fn name(mut self, name: &'a CStr) -> Self {
        self.name = Some(name);
        self
    }

    /// What pages to use.
    #[must_use]
    pub fn pages(mut self, pages: PageWish) -> Self {
        self.pages = pages;
        self
    }

    /// Bytes of the huge pages that are required, such as 1 GiB; without it the kernel's usual size.
    #[must_use]
    pub fn huge_page_bytes(mut self, bytes: usize) -> Self {
        self.huge_page_bytes = Some(bytes);
        self
    }

    /// When to bring the pages in.
    #[must_use]
    pub fn populate(mut self, populate: Populate) -> Self {
        self.populate = populate;
        self
    }

    /// How many threads populate, the calling one included; 0: as many as there are CPUs for, up to 16.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether pages stay in memory (`mlock`) from the moment they are there.
    #[must_use]
    pub fn locked(mut self, is_locked: bool) -> Self {
        self.is_locked = is_locked;
        self
    }

    /// Whether limits and free memory are looked at before pages are brought in, which is the default.
    #[must_use]
    pub fn checked(mut self, is_checked: bool) -> Self {
        self.is_checked = is_checked;
        self
    }

    /// Tells the progress of populating now. In the background, use [`Region::progress`](super::Region::progress).
    #[must_use]
    pub fn on_progress(mut self, progress: OnProgress<'a>) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Maps the region, and populates it as asked.
    ///
    /// # Errors
    /// [`RegionError`]; nothing is left behind then.
    pub fn map(self) -> Result<Region, RegionError> {
        Region::map(self)
    }

    /// Workers beside the calling thread, or in the background.
    pub(super) fn workers(&self) -> usize {
        workers(self.threads, self.populate)
    }
}

/// Workers for so many threads, of which the calling one is one unless it goes on.
pub(super) fn workers(threads: usize, populate: Populate) -> usize {
    let threads = match threads {
        0 => os::cpus_allowed().min(os::cpu_quota().unwrap_or(usize::MAX)).min(16),
        threads => threads,
    };
    let own = usize::from(populate != Populate::InBackground);
    (threads - own).min(MOST_WORKERS)
}
