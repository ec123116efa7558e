//! Real programs that allocate much, where they are installed.

/// A real program and what it does in a benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Name in tables.
    pub name: &'static str,
    /// Commands it needs in `PATH`.
    pub needs: &'static [&'static str],
    /// What `/bin/sh` runs once in the directory of the program, before all runs and not measured.
    pub prepare: Option<&'static str>,
    /// What `/bin/sh` runs in a directory of its own. Where one command does the work the shell becomes it, so
    /// that its mappings prove the allocator.
    pub script: &'static str,
}

/// All of them, in the order of the table.
pub const PROGRAMS: &[Program] = &[
    Program {
        name: "redis",
        needs: &["redis-server", "redis-benchmark"],
        prepare: None,
        script: include_str!("programs/redis.sh"),
    },
    Program {
        name: "python-json",
        needs: &["python3"],
        prepare: None,
        script: include_str!("programs/python_json.sh"),
    },
    Program {
        name: "python-xml",
        needs: &["python3"],
        prepare: None,
        script: include_str!("programs/python_xml.sh"),
    },
    Program { name: "perl", needs: &["perl"], prepare: None, script: include_str!("programs/perl.sh") },
    Program { name: "lua", needs: &["lua5.4"], prepare: None, script: include_str!("programs/lua.sh") },
    Program { name: "gcc", needs: &["gcc"], prepare: None, script: include_str!("programs/gcc.sh") },
    Program { name: "g++", needs: &["g++"], prepare: None, script: include_str!("programs/gxx.sh") },
    Program {
        name: "sqlite",
        needs: &["sqlite3"],
        prepare: None,
        script: include_str!("programs/sqlite.sh"),
    },
    Program {
        name: "ghostscript",
        needs: &["gs"],
        prepare: None,
        script: include_str!("programs/ghostscript.sh"),
    },
    Program { name: "z3", needs: &["z3"], prepare: None, script: include_str!("programs/z3.sh") },
    Program {
        name: "xmllint",
        needs: &["xmllint"],
        prepare: None,
        script: include_str!("programs/xmllint.sh"),
    },
    Program {
        name: "jvm-zip",
        needs: &["java", "javac"],
        prepare: Some(include_str!("programs/jvm_zip_prepare.sh")),
        script: include_str!("programs/jvm_zip.sh"),
    },
];

/// The program of that name.
#[must_use]
pub fn program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}
