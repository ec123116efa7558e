//! The memory control group of the test itself, and groups below it.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// The directory of our own memory control group, where it is to be seen.
pub fn own_group() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path_of = |wanted: &dyn Fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            wanted(controllers).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let one = path_of(&|controllers| controllers.split(',').any(|name| name == "memory"))
        .map(|path| PathBuf::from("/sys/fs/cgroup/memory").join(path))
        .filter(|directory| directory.join("memory.usage_in_bytes").is_file());
    let two = path_of(&str::is_empty)
        .map(|path| PathBuf::from("/sys/fs/cgroup").join(path))
        .filter(|directory| directory.join("memory.current").is_file());
    one.or(two).filter(|directory| fs::read_to_string(directory.join("cgroup.procs")).is_ok())
}

/// A group of a test's own with a limit, gone with the test.
pub struct LimitedGroup(PathBuf);

impl LimitedGroup {
    /// None where no group can be made and limited here.
    pub fn new(name: &str, limit_bytes: u64) -> Option<Self> {
        let directory = own_group()?.join(format!("faultless-{name}-{}", std::process::id()));
        fs::create_dir(&directory).ok()?;
        let group = Self(directory);
        let limit = |file: &str, bytes: u64| fs::write(group.0.join(file), bytes.to_string()).is_ok();
        if !limit("memory.limit_in_bytes", limit_bytes) && !limit("memory.max", limit_bytes) {
            return None;
        }
        // What may be swapped out is not killed; there may be no swap.
        let _ = limit("memory.memsw.limit_in_bytes", limit_bytes) || limit("memory.swap.max", 0);
        Some(group)
    }

    /// A line of shell that joins it, to be followed by others.
    pub fn join(&self) -> String {
        format!("echo $$ > {}", self.0.join("cgroup.procs").display())
    }
}

impl Drop for LimitedGroup {
    fn drop(&mut self) {
        // Those who were killed leave it a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
    }
}
