//! `cargo xtask install --prefix DIR`: the library for C and C++ programs, with what pkg-config and CMake look for.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::arguments::Arguments;
use crate::failure::{At, Result, usage};
use crate::library::{Profile, build, build_static};
use crate::workspace::root;

/// The library is wanted also where only libc calls malloc for a program: many compilers drop a shared library that a program itself
/// names nothing of (`--as-needed`), and of an archive what it names nothing of. The search path stands twice: Meson drops the first.
const PKG_CONFIG: &str = "\
prefix=${pcfiledir}/../..
libdir=${prefix}/lib
includedir=${prefix}/include

Name: faultless
Description: Memory allocator: few page faults, memory given back, bounded by CPUs
Version: @VERSION@
Libs: -L${libdir} -Wl,-L${libdir},--push-state,--no-as-needed,-u,malloc,-lfaultless,--pop-state -lfaultless
Cflags: -I${includedir}
";

const CMAKE_CONFIG: &str = "\
get_filename_component(_faultless_prefix \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)

if(NOT TARGET faultless::faultless)
  add_library(faultless::faultless SHARED IMPORTED)
  set_target_properties(faultless::faultless PROPERTIES
    IMPORTED_LOCATION \"${_faultless_prefix}/lib/libfaultless.so\"
    IMPORTED_SONAME \"libfaultless.so\"
    INTERFACE_INCLUDE_DIRECTORIES \"${_faultless_prefix}/include\"
    INTERFACE_LINK_OPTIONS
      \"LINKER:--push-state,--no-as-needed,${_faultless_prefix}/lib/libfaultless.so,--pop-state\")

  add_library(faultless::static STATIC IMPORTED)
  set_target_properties(faultless::static PROPERTIES
    IMPORTED_LOCATION \"${_faultless_prefix}/lib/libfaultless.a\"
    INTERFACE_INCLUDE_DIRECTORIES \"${_faultless_prefix}/include\"
    INTERFACE_LINK_LIBRARIES \"${CMAKE_DL_LIBS}\"
    INTERFACE_LINK_OPTIONS \"LINKER:-z,nodelete;LINKER:-u,malloc\")
endif()
unset(_faultless_prefix)
";

const CMAKE_VERSION: &str = "\
set(PACKAGE_VERSION \"@VERSION@\")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
";

/// Runs the task.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let Some(prefix) = arguments.option("--prefix")? else {
        return usage("install needs --prefix DIR, such as --prefix /usr/local");
    };
    arguments.end()?;
    let shared = build(Profile::Dist)?;
    let prefix = staged(PathBuf::from(prefix), std::env::var_os("DESTDIR"));
    let version = |text: &str| text.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    copy(&shared, &prefix.join("lib/libfaultless.so"))?;
    copy(&build_static()?, &prefix.join("lib/libfaultless.a"))?;
    for header in ["faultless.h", "faultless.hpp"] {
        copy(&root().join("crates/malloc/include").join(header), &prefix.join("include").join(header))?;
    }
    write(&version(PKG_CONFIG), &prefix.join("lib/pkgconfig/faultless.pc"))?;
    write(CMAKE_CONFIG, &prefix.join("lib/cmake/Faultless/FaultlessConfig.cmake"))?;
    write(&version(CMAKE_VERSION), &prefix.join("lib/cmake/Faultless/FaultlessConfigVersion.cmake"))
}

/// Where files go that are to be packed: below `DESTDIR`. None of them names the prefix.
fn staged(prefix: PathBuf, stage: Option<OsString>) -> PathBuf {
    match stage.filter(|stage| !stage.is_empty()) {
        Some(stage) => PathBuf::from(stage).join(prefix.strip_prefix("/").unwrap_or(&prefix)),
        None => prefix,
    }
}

/// Replaces the file as a whole: programs may be running on the old library.
fn copy(from: &Path, to: &Path) -> Result<()> {
    place(to, |temporary| fs::copy(from, temporary).map(drop))
}

fn write(text: &str, to: &Path) -> Result<()> {
    place(to, |temporary| fs::write(temporary, text))
}

/// Makes a folder that is not there yet.
fn create(folder: &Path) -> Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        create(above)?;
    }
    fs::create_dir(folder).at(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o755)).at(folder)
}

/// For everybody, whatever the umask and the modes of the checkout are.
fn place(to: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
    if let Some(folder) = to.parent() {
        create(folder)?;
    }
    let mut temporary = to.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let is_shared_library = to.extension().is_some_and(|extension| extension == "so");
    let mode = if is_shared_library { 0o755 } else { 0o644 };
    let placed = make(&temporary)
        .and_then(|()| fs::set_permissions(&temporary, Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&temporary, to));
    if placed.is_err() {
        // What there is of it is of no use, as on a full disk; that it may not be there is no second failure.
        let _ = fs::remove_file(&temporary);
    }
    placed.at(to)?;
    // Who reads the list may have seen enough (`| head -1`).
    let _ = writeln!(std::io::stdout(), "{}", to.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn a_file_that_could_not_be_written_as_a_whole_leaves_nothing_behind() {
        let folder = std::env::temp_dir().join(format!("faultless-install-{}", std::process::id()));
        let full = |path: &Path| fs::write(path, "a part").and(Err(Error::from(ErrorKind::StorageFull)));
        let placed = place(&folder.join("lib"), full);
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert!(placed.is_err());
        assert_eq!(left, 0);
    }
}
