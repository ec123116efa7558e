//! Whether a preload can reach a program.

use std::path::Path;

use faultless_records::elf::Executable;
use faultless_records::program::{Privilege, ProgramFile, ProgramKind};

/// `e_machine` of the machine this tool and its library are built for. Source: elf.h.
const HOST_MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// What a preload is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Our allocator, which can be linked into the program, too.
    Allocator,
    /// To compare allocators or to see calls, which takes a preload.
    Observation,
}

/// Why a preload does not reach the command and what to do about it; none when it does.
///
/// `chain` is the program, or a script followed by its interpreters; the last one decides.
#[must_use]
pub fn obstacle(chain: &[ProgramFile], purpose: Purpose) -> Option<String> {
    let file = chain.last()?;
    let path = file.path.display();
    let why = match &file.kind {
        ProgramKind::Elf(executable) => obstacle_in_elf(&file.path, executable, purpose),
        ProgramKind::Script(_) => {
            Some("its interpreters are scripts without end; start the last one by name".into())
        }
        ProgramKind::Damaged => Some(
            "it is an ELF program whose headers are damaged or cut off; build or install it again".into(),
        ),
        ProgramKind::Unknown => Some(
            "it is neither an ELF program nor a script with a #! line; put its interpreter before it".into(),
        ),
        // What cannot be read is started; the mappings at its end tell whether it loaded the library.
        ProgramKind::Unreadable => None,
    };
    let why = why.or_else(|| file.gains_privilege.map(obstacle_in_privilege))?;
    Some(match chain.first() {
        Some(script) if chain.len() > 1 => {
            format!("{} is run by {path}, and a preload does not reach that: {why}", script.path.display())
        }
        _ => format!("a preload does not reach {path}: {why}"),
    })
}

fn obstacle_in_elf(path: &Path, executable: &Executable, purpose: Purpose) -> Option<String> {
    if !executable.is_64_bit {
        return Some(
            "it is a 32-bit program and the library is a 64-bit one; use a 64-bit build of it".into(),
        );
    }
    if executable.machine != HOST_MACHINE {
        return Some("it is built for another kind of processor".into());
    }
    let Some(loader) = &executable.loader else {
        // Linking it in another way would not help: Go's heap is its run time's.
        if executable.is_go {
            return Some(
                "it is a static program of Go, which has its heap from Go's run time and no malloc; \
                 see its memory with faultless map, faults or churn"
                    .into(),
            );
        }
        // The loader as a command (`ld.so --library-path DIRECTORY PROGRAM`) heeds a preload.
        if is_glibc_loader(path) {
            return None;
        }
        let otherwise = match purpose {
            Purpose::Allocator => ", or, with glibc, link libfaultless.a into it",
            Purpose::Observation => "",
        };
        return Some(format!("it is linked statically; link it dynamically{otherwise}"));
    };
    if is_glibc_loader(Path::new(loader)) {
        return None;
    }
    Some(format!("it is built for another C library (its loader is {loader}); use a build for glibc"))
}

fn is_glibc_loader(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["ld-linux", "ld64.so", "ld.so"].iter().any(|start| name.starts_with(start))
}

fn obstacle_in_privilege(privilege: Privilege) -> String {
    let what = match privilege {
        Privilege::User => "it is set-user-ID",
        Privilege::Group => "it is set-group-ID",
        Privilege::Capabilities => "it has file capabilities",
    };
    format!(
        "{what}, and the loader drops every preload then; run it as the user it changes to, or from a copy"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(loader: Option<&str>) -> ProgramKind {
        let loader = loader.map(str::to_owned);
        ProgramKind::Elf(Executable { is_64_bit: true, machine: HOST_MACHINE, loader, is_go: false })
    }

    fn file(kind: ProgramKind) -> ProgramFile {
        ProgramFile { path: "/usr/bin/thing".into(), kind, gains_privilege: None }
    }

    fn obstacle(chain: &[ProgramFile]) -> Option<String> {
        super::obstacle(chain, Purpose::Allocator)
    }

    const GLIBC: Option<&str> = Some("/lib64/ld-linux-x86-64.so.2");

    #[test]
    fn a_dynamic_glibc_program_has_no_obstacle() {
        assert_eq!(obstacle(&[file(elf(GLIBC))]), None);
        assert_eq!(obstacle(&[file(ProgramKind::Unreadable)]), None);
    }

    #[test]
    fn the_loader_as_a_command_has_no_obstacle() {
        for path in ["/lib64/ld-linux-x86-64.so.2", "/usr/bin/ld.so"] {
            assert_eq!(obstacle(&[ProgramFile { path: path.into(), ..file(elf(None)) }]), None, "{path}");
        }
    }

    #[test]
    fn a_static_program_of_go_is_not_told_to_link_dynamically() {
        let ProgramKind::Elf(mut executable) = elf(None) else { panic!("no ELF program") };
        executable.is_go = true;
        let text = obstacle(&[file(ProgramKind::Elf(executable.clone()))]).unwrap();
        assert!(text.contains("Go's run time") && !text.contains("link it"), "{text}");
        executable.loader = GLIBC.map(str::to_owned);
        assert_eq!(obstacle(&[file(ProgramKind::Elf(executable))]), None, "one with C in it has malloc");
    }

    #[test]
    fn each_obstacle_is_named_with_a_way_round_it() {
        let message = |file| obstacle(&[file]).unwrap();
        assert!(message(file(elf(None))).contains("statically"));
        assert!(message(file(elf(Some("/lib/ld-musl-x86_64.so.1")))).contains("another C library"));
        assert!(message(file(ProgramKind::Unknown)).contains("#! line"));
        assert!(message(file(ProgramKind::Damaged)).contains("damaged or cut off"));
        let old = Executable {
            is_64_bit: false,
            machine: 3,
            loader: Some("/lib/ld-linux.so.2".into()),
            is_go: false,
        };
        assert!(message(file(ProgramKind::Elf(old))).contains("32-bit"));
        let foreign = Executable { is_64_bit: true, machine: 243, loader: None, is_go: false };
        assert!(message(file(ProgramKind::Elf(foreign))).contains("processor"));
        let setuid = ProgramFile { gains_privilege: Some(Privilege::User), ..file(elf(GLIBC)) };
        assert!(message(setuid).contains("set-user-ID"));
    }

    #[test]
    fn a_static_program_is_not_told_to_link_our_allocator_where_that_would_not_help() {
        let chain = [file(elf(None))];
        let says = |purpose| super::obstacle(&chain, purpose).unwrap();
        assert!(
            says(Purpose::Allocator)
                .ends_with("link it dynamically, or, with glibc, link libfaultless.a into it")
        );
        assert!(says(Purpose::Observation).ends_with("it is linked statically; link it dynamically"));
    }

    #[test]
    fn a_script_is_judged_by_its_last_interpreter() {
        let interpreter = faultless_records::script::interpreter(b"#!/bin/busybox sh").unwrap();
        let script = ProgramFile { path: "/opt/start".into(), ..file(ProgramKind::Script(interpreter)) };
        assert_eq!(obstacle(&[script.clone(), file(elf(GLIBC))]), None);
        let message = obstacle(&[script, file(elf(None))]).unwrap();
        assert!(message.starts_with("/opt/start is run by /usr/bin/thing"));
        let message = obstacle(&[file(elf(None))]).unwrap();
        assert!(message.starts_with("a preload does not reach /usr/bin/thing: "), "{message}");
    }
}
