//! Regions that are loaded: read by many, written by nobody.

use super::{OnProgress, Pages, Plain, Progress, Region, RegionError};
use crate::os::Access;
use core::ffi::c_void;
use core::fmt;
use core::ops::Deref;

/// A region that nobody writes to any more.
#[derive(Debug)]
pub struct ReadOnlyRegion(pub(super) Region);

/// A region that could not be made read-only, and why. `?` makes it a [`RegionError`], and gives the region up.
#[derive(Debug)]
pub struct Unfrozen {
    /// The region as it was.
    pub region: Region,
    /// What the kernel said.
    pub error: RegionError,
}

impl fmt::Display for Unfrozen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl core::error::Error for Unfrozen {}

impl From<Unfrozen> for RegionError {
    fn from(unfrozen: Unfrozen) -> Self {
        unfrozen.error
    }
}

impl Region {
    /// Makes the region read-only, once populating has ended. A shared one's file is sealed: nobody changes its size or maps it for
    /// writing from now on.
    ///
    /// # Errors
    /// [`Unfrozen`], with the region as it was.
    pub fn freeze(mut self) -> Result<ReadOnlyRegion, Unfrozen> {
        match self.set_access(Access::Read) {
            Ok(()) => Ok(ReadOnlyRegion(self)),
            Err(error) => Err(Unfrozen { region: self, error }),
        }
    }
}

impl ReadOnlyRegion {
    /// Makes the region writable again for this process, to load other data. A shared one keeps its size, since its file is sealed.
    ///
    /// # Errors
    /// [`RegionError::Refused`], or [`RegionError::Argument`] for one that was opened; the region is unmapped then.
    pub fn thaw(self) -> Result<Region, RegionError> {
        let mut region = self.0;
        region.set_access(Access::ReadWrite)?;
        Ok(region)
    }

    /// See [`Region::populate`].
    ///
    /// # Errors
    /// As [`Region::populate`].
    pub fn populate(&mut self, tell: OnProgress<'_>) -> Result<(), RegionError> {
        self.0.populate(tell)
    }

    /// See [`Region::populate_in_background`].
    ///
    /// # Errors
    /// As [`Region::populate_in_background`].
    pub fn populate_in_background(&mut self) -> Result<(), RegionError> {
        self.0.populate_in_background()
    }

    /// See [`Region::wait`].
    ///
    /// # Errors
    /// As [`Region::wait`].
    pub fn wait(&mut self, tell: OnProgress<'_>) -> Result<(), RegionError> {
        self.0.wait(tell)
    }

    /// See [`Region::progress`].
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// See [`Region::cancel`].
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// See [`Region::pages`].
    #[must_use]
    pub fn pages(&self) -> Option<Pages> {
        self.0.pages()
    }

    /// See [`Region::descriptor`].
    #[must_use]
    pub fn descriptor(&self) -> Option<i32> {
        self.0.descriptor()
    }

    /// See [`Region::view`].
    #[must_use]
    pub fn view<T: Plain>(&self) -> &[T] {
        self.0.view()
    }

    /// See [`Region::into_raw`].
    #[must_use]
    pub fn into_raw(self) -> *mut c_void {
        self.0.into_raw()
    }
}

impl Deref for ReadOnlyRegion {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
