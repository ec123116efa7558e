//! Run times of languages that manage memory themselves, in mappings of their own, and can be told to leave that to malloc.

use super::blame::plain_name;
use crate::classification::kind::Kind;

/// One of them.
#[derive(Debug)]
pub struct Runtime {
    /// The language.
    pub language: &'static str,
    /// What it serves.
    pub memory: Kind,
    /// What to do about what it maps and unmaps.
    pub remedy: &'static str,
    /// Starts of its functions that map and unmap.
    functions: &'static [&'static str],
    /// Starts of the files that have it in them. They are mostly stripped, and map nothing else that is no file and no stack.
    files: &'static [&'static str],
}

/// Those that are known. Sources: `Zend/zend_alloc.c` of PHP 8.2; `Objects/obmalloc.c` of CPython 3.11 and 3.13.
pub const RUNTIMES: [Runtime; 2] = [
    Runtime {
        language: "PHP",
        memory: Kind::PhpHeap,
        remedy: "USE_ZEND_ALLOC=0 in its environment has malloc serve it instead, though memory_limit does not hold then: compare `faultless doctor -- CMD` with `faultless doctor -- env USE_ZEND_ALLOC=0 CMD`",
        functions: &["zend_mm_"],
        files: &["php", "php-fpm", "php-cgi", "libphp"],
    },
    Runtime {
        language: "Python",
        memory: Kind::PythonObjects,
        remedy: "PYTHONMALLOC=malloc in its environment has malloc serve it instead, though glibc's takes more time for small blocks: compare `faultless doctor -- CMD` with `faultless doctor -- env PYTHONMALLOC=malloc CMD`",
        functions: &["PyObject_Arena", "PyMem_Arena", "new_arena", "insert_to_freepool"],
        files: &["python", "libpython"],
    },
];

impl Runtime {
    /// Whose function this is; none for others, also for other functions of these programs that have names.
    #[must_use]
    pub fn of(frame: &str) -> Option<&'static Self> {
        RUNTIMES.iter().find(|runtime| runtime.has(frame))
    }

    fn has(&self, frame: &str) -> bool {
        let name = plain_name(frame);
        let is_named = self.functions.iter().any(|start| name.starts_with(start));
        is_named
            || frame.split_once("+0x").is_some_and(|(file, _)| {
                let mut rests = self.files.iter().filter_map(|start| file.strip_prefix(start));
                rests.any(is_version)
            })
    }
}

/// Whether a file's name goes on with nothing but a version and what its kind is, as in `libpython3.11.so.1.0`.
fn is_version(rest: &str) -> bool {
    rest.replace(".so", "").chars().all(|letter| letter.is_ascii_digit() || letter == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_time_is_known_by_its_functions_and_by_its_files_without_names() {
        let language = |frame| Runtime::of(frame).map(|runtime| runtime.language);
        for frame in ["php8.2+0x2d3b57", "php-fpm8.2+0x1", "libphp.so+0x1", "php+0x1", "zend_mm_chunk_alloc"]
        {
            assert_eq!(language(frame), Some("PHP"), "{frame}");
        }
        for frame in ["python3.11+0x62d098", "libpython3.11.so.1.0+0x1", "_PyObject_ArenaMmap", "new_arena"] {
            assert_eq!(language(frame), Some("Python"), "{frame}");
        }
        for frame in ["phpredis.so+0x1200", "python_pool+0x10", "execute_ex", "pythonize", "libc.so.6+0x1"] {
            assert_eq!(language(frame), None, "{frame}");
        }
    }
}
