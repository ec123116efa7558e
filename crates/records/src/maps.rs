//! The files in `/proc/PID/maps`.

/// Paths of the mapped files, each once, in the order of their first mapping.
///
/// A file that was deleted or replaced since it was mapped is named without the kernel's ` (deleted)`.
#[must_use]
pub fn mapped_files(text: &str) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some(path) = path_of(line) else { continue };
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        if !files.iter().any(|known| known == path) {
            files.push(path.to_owned());
        }
    }
    files
}

/// Address range, permissions, offset, device, inode, then the path, which may contain spaces.
fn path_of(line: &str) -> Option<&str> {
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.trim_start().split_once(' ')?.1;
    }
    let path = rest.trim_start();
    path.starts_with('/').then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_listed_once_without_anonymous_mappings() {
        let text = "\
55d000-55e000 r--p 00000000 fe:00 131 /usr/bin/cat
55e000-55f000 r-xp 00001000 fe:00 131 /usr/bin/cat
560000-561000 rw-p 00000000 00:00 0   [heap]
7f0000-7f1000 rw-p 00000000 00:00 0
7f1000-7f2000 r--p 00000000 fe:00 97  /opt/my libs/libx.so (deleted)
7ffd00-7ffe00 r-xp 00000000 00:00 0   [vdso]
";
        assert_eq!(mapped_files(text), ["/usr/bin/cat", "/opt/my libs/libx.so"]);
    }

    #[test]
    fn damaged_lines_are_passed_over() {
        assert!(mapped_files("nonsense\n\n55d000-55e000 r--p\n").is_empty());
    }
}
