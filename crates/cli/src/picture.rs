//! Pictures as files: SVG, or PNG where the name ends so.

use std::ffi::OsStr;
use std::path::Path;

use faultless_report::plain::plain;
use faultless_report::png;
use faultless_report::scene::Scene;

use crate::failure::Failure;
use crate::output_file::OutputFile;

/// What a picture is written as.
#[derive(Clone, Copy)]
pub enum Form {
    /// Shapes.
    Svg,
    /// Pixels.
    Png,
}

impl Form {
    /// That of a file.
    ///
    /// # Errors
    /// [`Failure::Usage`] where its name ends in neither.
    pub fn of(path: &Path) -> Result<Self, Failure> {
        let ending = path.extension().map(OsStr::to_ascii_lowercase);
        match ending.as_deref().and_then(OsStr::to_str) {
            Some("png") => Ok(Self::Png),
            Some("svg") => Ok(Self::Svg),
            _ => Err(Failure::Usage(format!(
                "--plot draws a file that ends in .svg or .png, not {}",
                plain(&path.to_string_lossy())
            ))),
        }
    }

    /// Writes the picture and gives the file its name.
    ///
    /// # Errors
    /// [`Failure::Failed`] as [`OutputFile::write`], and where it is too large to paint.
    pub fn write(self, file: OutputFile, scene: &Scene) -> Result<(), Failure> {
        let too_large = || Failure::Failed("the picture is too large for PNG: use .svg".into());
        match self {
            Self::Svg => file.write(&scene.svg()),
            Self::Png => file.write_bytes(&png::png(scene).ok_or_else(too_large)?),
        }
    }
}
