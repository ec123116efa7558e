//! Makes what a campaign's cells run: programs written out, sources compiled, scripts in a directory of their own.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use faultless_probe::java::Java;
use faultless_probe::signals::Signals;
use faultless_records::bench::{Cell, Size, Suite};
use faultless_records::measurement::Ending;
use faultless_report::paste::quoted;
use faultless_trial::benchmark::campaign::Job;
use faultless_trial::benchmark::programs;
use faultless_trial::benchmark::seeds::{self, BURSTS};
use faultless_trial::command::{self, Command};
use faultless_trial::environment::Environment;

use crate::failure::Failure;
use crate::library;

/// Where and for whom.
pub struct Workshop<'a> {
    /// A private directory that exists.
    pub directory: &'a Path,
    /// How long a workload idles at its end, in ms.
    pub idle_ms: u32,
    /// The Java runtimes of this machine.
    pub javas: &'a [Java],
    /// For what is run to prepare.
    pub signals: &'a Signals,
}

impl Workshop<'_> {
    /// What a cell runs.
    ///
    /// # Errors
    /// [`Failure`] when it cannot be made.
    pub fn job(&self, cell: &Cell) -> Result<Job, Failure> {
        let failed = |error: io::Error| Failure::Failed(format!("cannot write {}: {error}", cell.workload));
        if cell.suite == Suite::Programs {
            return self.program(cell).map_err(failed)?;
        }
        if cell.workload == seeds::JVM {
            return self.java(cell).map_err(failed)?;
        }
        let workload = faultless_bundle::workload(&cell.workload)
            .ok_or_else(|| Failure::Failed(format!("this build carries no workload {}", cell.workload)))?;
        let program = faultless_bundle::workload_into(self.directory, workload)
            .map_err(|error| library::unwritten(&cell.workload, self.directory, &error))?;
        let mut arguments = self.arguments(cell, &cell.workload);
        arguments.extend(cell.variant.clone().map(OsString::from));
        Ok(Job::new(Command::new(program, arguments), true))
    }

    /// `NAME THREADS SIZE IDLE_MS`.
    fn arguments(&self, cell: &Cell, name: &str) -> Vec<OsString> {
        let size = cell.size.unwrap_or(Size::Small).name();
        let words = [name, &cell.threads.unwrap_or(1).to_string(), size, &self.idle_ms.to_string()]
            .map(OsString::from);
        words.to_vec()
    }

    fn program(&self, cell: &Cell) -> io::Result<Result<Job, Failure>> {
        let place = self.directory.join(&cell.workload);
        fs::create_dir_all(&place)?;
        let program = programs::program(&cell.workload);
        let command =
            |script: &str| shell(&format!("cd {} || exit 1\n{script}", quoted(&place.to_string_lossy())));
        if let Some(script) = program.and_then(|program| program.prepare) {
            // Without what it should have made, the runs fail and say so.
            if let Err(error) = command::run(&command(script), &own_environment(), self.signals) {
                return Ok(Err(Failure::of_run(&cell.workload, error)));
            }
        }
        let script = program.map_or("", |program| program.script);
        Ok(Ok(Job::new(command(script), false)))
    }

    /// The case `jvm`, compiled by the version's own compiler once and for all its cells. Its variant is `VERSION` or
    /// `VERSION-random:SEED`.
    fn java(&self, cell: &Cell) -> io::Result<Result<Job, Failure>> {
        let variant = cell.variant.as_deref().unwrap_or_default();
        let (version, form) = variant.split_once('-').unwrap_or((variant, "bursts"));
        let Some(java) = self.javas.iter().find(|java| java.version.to_string() == version) else {
            return Ok(Err(Failure::Failed(format!("no JDK {version} is installed"))));
        };
        let place = self.directory.join(format!("java-{version}"));
        if !place.exists() {
            fs::create_dir(&place)?;
            fs::write(place.join("Bursts.java"), BURSTS)?;
            let words: [&Path; 4] = [Path::new("javac"), Path::new("-d"), &place, &place.join("Bursts.java")];
            let arguments = words.iter().map(OsString::from).collect();
            let compile = Command::new(java.home.join("bin/javac"), arguments);
            let compiled = match command::run(&compile, &own_environment(), self.signals) {
                Ok(run) => run,
                Err(error) => return Ok(Err(Failure::of_run("javac", error))),
            };
            if compiled.measurement.ending != Ending::Exited(0) {
                let reason = compiled.output_tail.lines().last().unwrap_or("it said nothing").to_owned();
                return Ok(Err(Failure::Failed(format!("javac {version} failed: {reason}"))));
            }
        }
        let mut arguments = vec![OsString::from("java")];
        arguments.extend(seeds::JAVA_OPTIONS.iter().map(OsString::from));
        arguments.extend([OsString::from("-cp"), place.into_os_string()]);
        arguments.extend(self.arguments(cell, "Bursts"));
        arguments.push(form.into());
        let command = Command::new(java.home.join("bin/java"), arguments);
        Ok(Ok(Job::new(command, true)))
    }
}

fn own_environment() -> Environment {
    Environment::new(std::env::vars_os())
}

/// `/bin/sh -c SCRIPT`.
#[must_use]
pub fn shell(script: &str) -> Command {
    let arguments = ["sh", "-c", script].map(OsString::from).to_vec();
    Command::new("/bin/sh", arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_the_seeds_has_its_program() {
        for name in seeds::names().filter(|name| *name != seeds::JVM).chain([seeds::EMPTY]) {
            assert!(faultless_bundle::workload(name).is_some(), "{name}");
        }
    }
}
