//! A directory of a test's own, gone with the test.

use std::fs;
use std::path::PathBuf;

/// Its path.
pub struct Place(pub PathBuf);

impl Place {
    /// Tests of one file have names of their own.
    pub fn new(name: &str) -> Self {
        let name = format!("faultless-{}-{name}-{}", env!("CARGO_CRATE_NAME"), std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// The path of a file in it.
    #[allow(dead_code, reason = "some tests make their own")]
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
