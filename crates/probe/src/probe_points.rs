//! Probes at functions that many events share.
//!
//! An event that asks for a probe itself gets one of its own, which takes the kernel some tenths of a second to set and to remove,
//! and is looked at in every call by whichever thread. There is an event for each thread and CPU. So where tracefs can be written
//! each probe gets a name there, and the events are those of its name.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::tracefs::Tracefs;

/// Where names are given and taken back.
const LIST: &str = "uprobe_events";

/// What all our names begin with; the number of the process that gave it follows.
const PREFIX: &str = "faultless_";

/// A function by its offset in a file, and whether its return is meant.
pub type Place = (u64, bool);

/// Named probes, which go when this is dropped; the events of their names must have gone before.
#[derive(Debug)]
pub struct ProbePoints {
    tracefs: Tracefs,
    group: String,
    ids: Vec<u64>,
}

impl ProbePoints {
    /// Names a probe at each place of a file.
    ///
    /// # Errors
    /// One line that says what would help.
    pub fn name(file: &File, places: &[Place]) -> Result<Self, String> {
        static GROUPS: AtomicU32 = AtomicU32::new(0);
        let tracefs = Tracefs::open()?;
        remove_left_behind(&tracefs);
        // ORDERING: Relaxed; only that numbers differ matters.
        let group = format!("{PREFIX}{}_{}", std::process::id(), GROUPS.fetch_add(1, Ordering::Relaxed));
        let mut points = Self { tracefs, group, ids: Vec::new() };
        for place in places {
            points.add(file, *place).map_err(|error| format!("cannot name a probe in tracefs: {error}"))?;
        }
        Ok(points)
    }

    fn add(&mut self, file: &File, (offset, is_return): Place) -> io::Result<()> {
        let kind = if is_return { 'r' } else { 'p' };
        let (group, number) = (&self.group, self.ids.len());
        let line = format!("{kind}:{group}/at_{number} /proc/self/fd/{}:{offset:#x}\n", file.as_raw_fd());
        self.tracefs.append(LIST, &line)?;
        // Counted before its number is known, so that it is removed in any case.
        self.ids.push(0);
        self.ids[number] = self.tracefs.id(&format!("{group}/at_{number}"))?;
        Ok(())
    }

    /// Numbers of the tracepoints, in the order of the places.
    #[must_use]
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }
}

impl Drop for ProbePoints {
    fn drop(&mut self) {
        for number in 0..self.ids.len() {
            let _ = self.tracefs.append(LIST, &format!("-:{}/at_{number}\n", self.group));
        }
    }
}

/// Removes the names that tools left which were killed. Those in use the kernel keeps.
fn remove_left_behind(tracefs: &Tracefs) {
    let list = tracefs.text(LIST).unwrap_or_default();
    for name in list.lines().filter_map(|line| line.split_ascii_whitespace().next()?.split_once(':')) {
        let (_, name) = name;
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
        if owner.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists()) {
            let _ = tracefs.append(LIST, &format!("-:{name}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_with_their_owner_and_those_of_the_dead_with_the_next() {
        let file = File::open("/proc/self/exe").unwrap();
        let points = match ProbePoints::name(&file, &[(0x1000, false), (0x1000, true)]) {
            Ok(points) => points,
            Err(reason) => {
                assert!(!reason.contains('\n'), "{reason}");
                return faultless_skipped::skipped(reason);
            }
        };
        assert!(points.ids()[0] > 0 && points.ids()[0] != points.ids()[1]);
        let names = |group: &str| points.tracefs.text(LIST).unwrap().matches(&format!(":{group}/")).count();
        assert_eq!(names(&points.group), 2);
        // No process has this number.
        let dead = format!("{PREFIX}{}_7", u32::MAX);
        let line = format!("p:{dead}/at_0 /proc/self/fd/{}:0x1000\n", file.as_raw_fd());
        points.tracefs.append(LIST, &line).unwrap();
        let next = ProbePoints::name(&file, &[(0x1000, false)]).unwrap();
        assert_eq!((names(&dead), names(&points.group), names(&next.group)), (0, 2, 1));
        let (tracefs, group) = (Tracefs::open().unwrap(), points.group.clone());
        drop((points, next));
        assert!(!tracefs.text(LIST).unwrap().contains(&group));
    }
}
