//! A directory of a test's own, gone with the test, and the C programs that are compiled in it.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

    /// With a directory for temporary files in it, `tmp`.
    pub fn with_temporary(name: &str) -> Self {
        let place = Self::new(name);
        fs::create_dir(place.0.join("tmp")).unwrap();
        place
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// The path of a file of these bytes.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The path of a program or library that is compiled of this C source.
    #[track_caller]
    pub fn compile(&self, name: &str, source: &str, options: &[&str]) -> String {
        match compile(&self.0, name, source, options) {
            Ok(program) => program,
            Err(words) => panic!("{name}: {words}"),
        }
    }

    /// The same; none where the compiler cannot do what the options ask for.
    pub fn try_compile(&self, name: &str, source: &str, options: &[&str]) -> Option<String> {
        compile(&self.0, name, source, options).ok()
    }

    /// The path of a 32-bit program that is assembled of this source; none where such are not built, or do not run.
    pub fn try_assemble_32_bit(&self, name: &str, source: &str) -> Option<String> {
        let assembled = |name: &str, source: &str| {
            let source = self.write(&format!("{name}.s"), source);
            let (object, program) = (self.file(&format!("{name}.o")), self.file(name));
            let is_done = succeeds("as", &["--32", "-o", &object, &source])
                && succeeds("ld", &["-m", "elf_i386", "-o", &program, &object]);
            is_done.then_some(program)
        };
        let ends = assembled("ends", ".globl _start\n_start: movl $1, %eax\n xorl %ebx, %ebx\n int $0x80\n")?;
        if succeeds(&ends, &[]) { assembled(name, source) } else { None }
    }
}

fn succeeds(program: &str, words: &[&str]) -> bool {
    Command::new(program).args(words).status().is_ok_and(|status| status.success())
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compiles C source in a folder.
///
/// # Errors
/// What the compiler says.
pub fn compile(folder: &Path, name: &str, source: &str, options: &[&str]) -> Result<String, String> {
    let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&file, source).unwrap();
    // Libraries among the options serve what stands before them.
    let output = Command::new("cc").arg("-o").args([&program, &file]).args(options).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(program.to_str().unwrap().to_owned())
}
