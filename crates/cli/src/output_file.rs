//! A file that appears whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use faultless_bundle::unfinished::Unfinished;
use faultless_probe::named_pipe;
use faultless_report::plain::plain;

use crate::failure::Failure;

/// A file to be written at the end of long work; it is made now, so that a place that cannot be written is known now.
pub struct OutputFile {
    path: PathBuf,
    /// Where it is to appear, with no links on the way.
    place: PathBuf,
    target: Target,
}

/// What is written.
enum Target {
    /// It has its name already: what [`is_stream`].
    Stream(File),
    /// It gets its name in the end.
    Beside(Unfinished),
}

impl OutputFile {
    /// Makes the file beside `path`.
    ///
    /// # Errors
    /// [`Failure::Failed`] with the kernel's reason, [`Failure::Usage`] as [`refuse_dash`].
    pub fn create(path: &Path) -> Result<Self, Failure> {
        refuse_dash(path)?;
        let place = place_of(path);
        let made = match () {
            () if is_stream(path) => open_stream(path).map(Target::Stream),
            () if path.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            () => create_beside(&place).map(Target::Beside),
        };
        let target = made.map_err(|error| Failure::of_writing(path, &error))?;
        Ok(Self { path: path.to_owned(), place, target })
    }

    /// Where it is to appear, with no links on the way.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Whether it is to appear at this path, however that is written.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        self.place == place_of(path)
    }

    /// Writes it and gives it its name.
    ///
    /// # Errors
    /// [`Failure::Failed`] with the kernel's reason; a file of that name is then as it was.
    pub fn write(self, text: &str) -> Result<(), Failure> {
        self.write_bytes(text.as_bytes())
    }

    /// As [`OutputFile::write`], for what is no text.
    ///
    /// # Errors
    /// The same.
    pub fn write_bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match self.target {
            Target::Stream(mut file) => file.write_all(bytes),
            Target::Beside(mut made) => made.file.write_all(bytes).and_then(|()| made.rename(&self.place)),
        };
        written.map_err(|error| Failure::of_writing(&self.path, &error))
    }
}

/// Who writes `-` means standard output, where the result is printed already.
///
/// # Errors
/// [`Failure::Usage`].
pub fn refuse_dash(path: &Path) -> Result<(), Failure> {
    match path == Path::new("-") {
        true => Err(Failure::Usage(
            "- is no file here: standard output is /dev/stdout, a file of that name ./-".into(),
        )),
        false => Ok(()),
    }
}

/// Whether there is a device, a pipe or the like, or what we print to, or were given opened, which is written as it is.
pub fn is_stream(path: &Path) -> bool {
    let is_open = |file: fs::Metadata| !file.is_dir() && (!file.is_file() || is_descriptor(path));
    fs::metadata(path).is_ok_and(is_open) || own_stream(path).is_some()
}

/// Whether a path names what is open under a number, as `--json /dev/fd/3 3>> log`.
fn is_descriptor(path: &Path) -> bool {
    let is_number =
        path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
    is_number && ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.parent() == Some(Path::new(folder)))
}

/// Our own standard output or standard error, where `path` leads to what that is, as `/dev/stdout` does: replaced or opened again, a
/// file would lose what others have written there, such as a command.
fn own_stream(path: &Path) -> Option<File> {
    let named = fs::metadata(path).ok()?;
    let is_named =
        |own: &File| own.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (named.dev(), named.ino()));
    let own = [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
    own.into_iter().flatten().map(File::from).find(is_named)
}

/// Opens what [`is_stream`].
///
/// # Errors
/// The kernel's; a named pipe that nobody reads.
pub fn open_stream(path: &Path) -> io::Result<File> {
    if let Some(own) = own_stream(path) {
        return Ok(own);
    }
    match fs::metadata(path)?.file_type().is_fifo() {
        true => named_pipe::open(path),
        // Others may have written there before, and may go on.
        false => OpenOptions::new().append(is_descriptor(path)).write(true).open(path),
    }
}

/// Makes the file beside its place, for those only who may read the one that it is to replace.
fn create_beside(place: &Path) -> io::Result<Unfinished> {
    let made = Unfinished::beside(place)?;
    if let Ok(old) = fs::metadata(place) {
        made.file.set_permissions(old.permissions())?;
    }
    Ok(made)
}

/// The path of a file, of one that is to be made by its folder.
fn place_of(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match (fs::canonicalize(folder), path.file_name()) {
            (Ok(folder), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        }
    })
}

/// Whether both are one file of a disk, so that writing one changes the other.
pub fn are_one(one: &File, other: &File) -> bool {
    let of = |file: &File| file.metadata().ok().filter(fs::Metadata::is_file).map(|of| (of.dev(), of.ino()));
    of(one).is_some_and(|identity| Some(identity) == of(other))
}

/// Makes those that are asked for; no two may be one file, and none the one that is `read`.
///
/// # Errors
/// [`Failure::Usage`] where they are, else as [`OutputFile::create`].
pub fn create_apart<const COUNT: usize>(
    paths: [Option<&Path>; COUNT],
    read: Option<&Path>,
) -> Result<[Option<OutputFile>; COUNT], Failure> {
    let mut made = [const { None }; COUNT];
    for (place, path) in paths.into_iter().enumerate() {
        let Some(path) = path else { continue };
        if made.iter().flatten().any(|other: &OutputFile| other.is_at(path)) {
            return Err(named_twice(path));
        }
        let file = OutputFile::create(path)?;
        if read.is_some_and(|read| file.is_at(read)) {
            return Err(named_twice(path));
        }
        made[place] = Some(file);
    }
    Ok(made)
}

/// What is said where one file is to be written by two, or read and written.
pub fn named_twice(path: &Path) -> Failure {
    let shown = plain(&path.to_string_lossy());
    Failure::Usage(format!("{shown} is named twice, or read at the same time"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_appears_when_it_is_written_and_not_before() {
        let directory = std::env::temp_dir().join(format!("faultless-output-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("result");
        drop(OutputFile::create(&path).unwrap());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        OutputFile::create(&path).unwrap().write("text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        assert!(OutputFile::create(&directory).is_err());
        OutputFile::create(Path::new("/dev/null")).unwrap().write("text").unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_is_open_under_a_number_is_written_behind_what_stands_there() {
        let path = std::env::temp_dir().join(format!("faultless-descriptor-{}", std::process::id()));
        fs::write(&path, "old ").unwrap();
        let log = OpenOptions::new().append(true).open(&path).unwrap();
        for folder in ["/dev/fd", "/proc/self/fd"] {
            let named = Path::new(folder).join(log.as_raw_fd().to_string());
            OutputFile::create(&named).unwrap().write("new ").unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "old new new ");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_private_file_stays_private_and_no_link_is_followed() {
        let directory = std::env::temp_dir().join(format!("faultless-private-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("result");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        OutputFile::create(&path).unwrap().write("new").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let trap = directory.join(format!("result.{}.new", std::process::id()));
        std::os::unix::fs::symlink(directory.join("elsewhere"), &trap).unwrap();
        assert!(OutputFile::create(&path).is_err());
        assert!(!directory.join("elsewhere").exists());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_a_killed_writer_left_is_no_obstacle_and_what_another_writes_is() {
        let directory = std::env::temp_dir().join(format!("faultless-left-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("result");
        fs::write(directory.join(format!("result.{}.new", std::process::id())), "half").unwrap();
        let file = OutputFile::create(&path).unwrap();
        assert!(OutputFile::create(&path).is_err(), "it is being written");
        file.write("whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_link_stays_and_two_ways_to_one_place_are_known_as_one() {
        let directory = std::env::temp_dir().join(format!("faultless-links-{}", std::process::id()));
        fs::create_dir_all(directory.join("below")).unwrap();
        let (path, link) = (directory.join("result"), directory.join("link"));
        let file = OutputFile::create(&path).unwrap();
        assert!(file.is_at(&path) && file.is_at(&directory.join("below/../result")));
        assert!(!file.is_at(&directory.join("other")) && !file.is_at(Path::new("/")));
        file.write("text").unwrap();

        std::os::unix::fs::symlink(&path, &link).unwrap();
        OutputFile::create(&link).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let open = |path: &Path| File::open(path).unwrap();
        assert!(are_one(&open(&path), &open(&link)));
        assert!(!are_one(&open(Path::new("/dev/null")), &open(Path::new("/dev/null"))));
        fs::remove_dir_all(&directory).unwrap();
    }
}
