//! `cargo xtask regions`: how fast regions are populated, and the case of a gallery that many threads search, by counts of faults.

mod gallery;
mod populate;
mod programs;
mod sample;
mod summary;

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use crate::arguments::Arguments;
use crate::failure::{At, Result, usage};
use crate::library::{Profile, build};
use programs::Programs;
use sample::Sample;

/// Runs the task.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let rounds: usize = arguments.number("--rounds", 3)?;
    let is_quick = arguments.switch("--quick");
    let out = arguments.option("--out")?.map(PathBuf::from);
    let parts = arguments.words()?;
    if rounds == 0 {
        return usage("--rounds needs at least 1");
    }
    if let Some(unknown) = parts.iter().find(|part| !["populate", "gallery"].contains(&part.as_str())) {
        return usage(format!("no part is called {unknown:?}; there are populate and gallery"));
    }
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    // What cannot be written is known before minutes of work.
    let mut file = match &out {
        Some(path) => Some(fs::File::create(path).at(path)?),
        None => None,
    };
    let programs = Programs::build(&build(Profile::Dist)?)?;
    let mut samples: Vec<Sample> = Vec::new();
    if is_wanted("populate") {
        let measured = populate::measure(&programs, rounds, is_quick)?;
        print!("{}", populate::table(&measured));
        samples.extend(measured);
    }
    if is_wanted("gallery") {
        let measured = gallery::measure(&programs, rounds, is_quick)?;
        print!("{}", gallery::table(&measured));
        samples.extend(measured);
    }
    if let (Some(file), Some(path)) = (&mut file, &out) {
        let lines: String = samples.iter().map(Sample::json_line).collect();
        file.write_all(lines.as_bytes()).at(path)?;
        println!("{}", path.display());
    }
    Ok(())
}
