//! The rules of ARCHITECTURE.md and CONTRIBUTING.md that can be read off the sources hold; and the rules themselves find
//! what they are for.

use faultless_tests::rules;
use faultless_tests::source::Source;
use faultless_tests::workspace::Workspace;

fn holds(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn modules_of_the_heap_use_only_layers_above_them() {
    holds(&rules::layer_order(&Workspace::read().sources, "heap"));
}

#[test]
fn crates_use_only_the_crates_they_may() {
    let workspace = Workspace::read();
    holds(&rules::crate_dependencies(&workspace.manifests, &workspace.documents["ARCHITECTURE.md"]));
}

#[test]
fn dependencies_have_their_reasons_in_the_architecture() {
    let workspace = Workspace::read();
    holds(&rules::dependency_reasons(&workspace.manifests, &workspace.documents["ARCHITECTURE.md"]));
}

#[test]
fn files_are_short_and_named_by_what_they_hold() {
    let workspace = Workspace::read();
    holds(&rules::file_lengths(&workspace.sources));
    holds(&rules::file_names(&workspace.paths));
}

#[test]
fn unsafe_code_stands_in_its_rooms_and_says_who_guarantees_it() {
    let workspace = Workspace::read();
    holds(&rules::unsafe_rooms(&workspace.sources));
    holds(&rules::safety_comments(&workspace.sources));
}

#[test]
fn memory_orderings_say_what_they_publish() {
    holds(&rules::ordering_comments(&Workspace::read().sources));
}

#[test]
fn raw_system_calls_stand_at_the_rim() {
    holds(&rules::system_calls(&Workspace::read().sources));
}

#[test]
fn pure_crates_read_no_files_and_no_clocks_and_only_the_tool_prints() {
    holds(&rules::pure_rooms(&Workspace::read().sources));
}

#[test]
fn paths_and_headings_that_documents_name_exist() {
    let workspace = Workspace::read();
    holds(&rules::document_paths(&workspace.documents, &workspace.paths));
    holds(&rules::document_anchors(&workspace.documents));
}

#[test]
fn prose_of_documents_is_wrapped() {
    holds(&rules::document_widths(&Workspace::read().documents));
}

fn one(path: &str, text: &str) -> Vec<Source> {
    vec![Source::parse(path, text)]
}

#[test]
fn layer_rule_finds_uses_of_lower_layers_in_all_forms() {
    let sources = |text: &str| {
        let root = Source::parse(
            "crates/heap/src/lib.rs",
            "mod a;\npub mod b;\npub(crate) mod c;\n#[cfg(test)]\nmod fake;\n",
        );
        vec![root, Source::parse("crates/heap/src/b.rs", text)]
    };
    let violations = |text: &str| rules::layer_order(&sources(text), "heap");
    holds(&violations(
        "use crate::a::X;\nuse crate::b::Y;\nuse super::a;\nfn f() { crate::a::g() }\n// crate::c",
    ));
    holds(&violations("#[cfg(test)]\nmod tests {\n    use crate::c;\n}\nmod inner {\n    use super::f;\n}"));
    assert_eq!(
        violations("\nuse crate::c::X;"),
        ["crates/heap/src/b.rs:2: b uses c, which stands below it in crates/heap/src/lib.rs"]
    );
    for bad in [
        "use crate::{a, c};",
        "use crate::{\n    a::{x, y},\n    c::z,\n};",
        "use super::c::X;",
        "pub use crate::c;",
        "fn f() { crate::c::g() }",
        "mod inner {\n    use crate::c;\n}",
        "use crate::fake;",
    ] {
        assert_eq!(violations(bad).len(), 1, "{bad}");
    }
}

#[test]
fn crate_rule_finds_forbidden_dependencies_and_missing_lints() {
    let architecture =
        "\n## Rooms\n\n| crate | what | may use |\n|---|---|---|\n| `heap` | | |\n| `malloc` | | `heap` |\n";
    let violations = |folder: &str, manifest: &str| {
        rules::crate_dependencies(&[(folder.to_owned(), manifest.to_owned())].into(), architecture)
    };
    holds(&violations(
        "crates/malloc",
        "[dependencies]\nfaultless-heap.workspace = true\n[lints]\nworkspace = true\n",
    ));
    let manifest = "[dev-dependencies]\nfaultless-malloc = { path = \"x\" }\n[lints]\nworkspace = true\n";
    let expected = "crates/heap/Cargo.toml:2: heap may not use malloc (ARCHITECTURE.md, Rooms)";
    assert_eq!(violations("crates/heap", manifest), [expected]);
    assert_eq!(violations("crates/heap", "").len(), 1, "no lints");
    assert_eq!(violations("crates/unknown", "[lints]\nworkspace = true\n").len(), 1, "not in the table");
}

#[test]
fn reason_rule_finds_dependencies_without_reasons_and_reasons_without_dependencies() {
    let architecture = "\n## Dependencies\n\n| crate | in | why |\n|---|---|---|\n| a, b | `report` | |\n| c | `cli`, `fuzz` | |\n| t | tests | |\n";
    let violations = |report: &str, cli: &str| {
        let manifests = [("crates/report", report), ("crates/cli", cli)];
        let manifests = manifests.map(|(folder, text)| (folder.to_owned(), text.to_owned())).into();
        rules::dependency_reasons(&manifests, architecture)
    };
    let (report, cli) = ("[dependencies]\na = \"1\"\nb = \"1\"\n", "[dependencies]\nc.workspace = true\n");
    let tests = format!("{report}faultless-records.workspace = true\n[dev-dependencies]\nt = \"1\"\n");
    holds(&violations(&tests, cli));
    assert_eq!(violations(report, cli), ["ARCHITECTURE.md: nobody depends on t"]);
    assert_eq!(
        violations(&tests, &format!("{cli}a = \"1\"\n")),
        ["crates/cli/Cargo.toml:3: a in cli has no reason in ARCHITECTURE.md, Dependencies"]
    );
    assert_eq!(violations(&tests, ""), ["ARCHITECTURE.md: cli does not depend on c"]);
}

#[test]
fn length_and_name_rules_find_long_and_empty_ones() {
    assert_eq!(rules::file_lengths(&one("crates/heap/src/a.rs", &"x\n".repeat(501))).len(), 1);
    holds(&rules::file_lengths(&one("crates/heap/src/a.rs", &"x\n".repeat(500))));
    holds(&rules::file_lengths(&one("crates/malloc/src/c.rs", &"x\n".repeat(900))));
    let paths =
        ["crates/cli/src/utils.rs", "crates/cli/src/types/mod.rs", "tests/c/misc.c", "crates/cli/src/types"];
    assert_eq!(rules::file_names(&paths.map(str::to_owned)).len(), 3);
}

#[test]
fn unsafe_rules_find_code_and_not_words() {
    let root = "#![forbid(unsafe_code)]\n";
    holds(&rules::unsafe_rooms(&one(
        "crates/cli/src/main.rs",
        &format!("{root}// unsafe\nlet a = \"unsafe\";"),
    )));
    assert_eq!(rules::unsafe_rooms(&one("crates/cli/src/main.rs", "fn main() {}")).len(), 1);
    assert_eq!(rules::unsafe_rooms(&one("crates/cli/src/run.rs", "unsafe fn f() {}")).len(), 1);
    holds(&rules::unsafe_rooms(&one("crates/probe/src/lib.rs", "unsafe fn f() {}")));
    holds(&rules::safety_comments(&one("crates/heap/src/a.rs", "// SAFETY: the caller.\nunsafe { f() }")));
    assert_eq!(rules::safety_comments(&one("crates/heap/src/a.rs", "// safe\nunsafe { f() }")).len(), 1);
    assert_eq!(rules::safety_comments(&one("crates/heap/src/a.rs", "unsafe impl Sync for X {}")).len(), 1);
}

#[test]
fn ordering_rule_wants_its_comment_near_or_around() {
    let violations = |text: &str| rules::ordering_comments(&one("crates/heap/src/a.rs", text)).len();
    let use_it = "        x.load(Ordering::Relaxed);\n";
    let far = "        y();\n".repeat(20);
    assert_eq!(violations(&format!("impl A {{\n    fn f() {{\n{use_it}    }}\n}}")), 1);
    assert_eq!(
        violations(&format!("impl A {{\n    fn f() {{\n        // ORDERING: why\n{far}{use_it}    }}\n}}")),
        0
    );
    assert_eq!(
        violations(&format!("impl A {{\n    /// ORDERING: why\n    fn f() {{\n{far}{use_it}    }}\n}}")),
        0
    );
    let other = "    fn g() {\n        // ORDERING: of g\n    }\n";
    assert_eq!(violations(&format!("impl A {{\n{other}    fn f() {{\n{far}{use_it}    }}\n}}")), 1);
    let all = "    // ORDERING: Relaxed throughout; a counter.\n";
    assert_eq!(violations(&format!("impl A {{\n{all}{other}    fn f() {{\n{far}{use_it}    }}\n}}")), 0);
    assert_eq!(
        violations(&format!("impl B {{\n{all}}}\nimpl A {{\n    fn f() {{\n{far}{use_it}    }}\n}}")),
        1
    );
    assert_eq!(violations("match a.cmp(b) {\n    Ordering::Less => 1,\n}"), 0);
    assert_eq!(violations("use core::sync::atomic::Ordering::Relaxed;"), 1);
    assert_eq!(violations("#[cfg(test)]\nmod tests {\n    fn f() { x.load(Ordering::Relaxed); }\n}"), 0);
}

#[test]
fn system_call_rule_finds_assembly_and_libc() {
    let violations = |path: &str, text: &str| rules::system_calls(&one(path, text)).len();
    assert_eq!(violations("crates/heap/src/heap.rs", "asm!(\"syscall\", in(\"rax\") 1)"), 1);
    assert_eq!(violations("crates/heap/src/heap.rs", "    asm!(\n        \"syscall\",\n"), 1);
    assert_eq!(violations("crates/cli/src/run.rs", "libc::syscall(1)"), 1);
    assert_eq!(violations("crates/heap/src/os/linux.rs", "asm!(\"syscall\")"), 0);
    assert_eq!(violations("crates/heap/src/heap.rs", "// a syscall\nlet a = \"a syscall\";"), 0);
}

#[test]
fn purity_rule_finds_files_clocks_and_printing_outside_of_tests() {
    let violations = |path: &str, text: &str| rules::pure_rooms(&one(path, text)).len();
    for bad in ["use std::fs;", "let now = Instant::now();", "std::fs::read(path)", "println!(\"x\");"] {
        assert_eq!(violations("crates/diagnosis/src/verdict.rs", bad), 1, "{bad}");
    }
    assert_eq!(violations("crates/diagnosis/src/verdict.rs", "\"std::fs\"; // std::fs\nuse std::fmt;"), 0);
    assert_eq!(violations("crates/records/src/elf.rs", "#[cfg(test)]\nmod tests {\n    use std::fs;\n}"), 0);
    assert_eq!(violations("crates/probe/src/process.rs", "use std::fs;"), 0);
    assert_eq!(violations("crates/trial/src/command.rs", "eprintln!(\"x\");"), 1);
    assert_eq!(violations("crates/cli/src/main.rs", "eprintln!(\"x\");"), 0);
    assert_eq!(violations("crates/bundle/build.rs", "println!(\"x\");"), 0);
}

#[test]
fn document_rule_finds_dead_paths_and_links() {
    let paths = [
        "README.md",
        "crates",
        "crates/heap",
        "crates/heap/src",
        "crates/heap/src/lib.rs",
        "docs",
        "docs/a.md",
    ];
    let paths = paths.map(str::to_owned);
    let violations =
        |text: &str| rules::document_paths(&[("README.md".to_owned(), text.to_owned())].into(), &paths);
    holds(&violations(
        "`crates/heap`, `lib.rs`, `src/lib.rs`, [a](docs/a.md#part), [b](https://x.org/y), `a/b`, `/proc/x.c`",
    ));
    holds(&violations("`target/x.rs`, `bench/<date>/x.md`, `malloc/free`\n```\n`gone.rs`\n```\n"));
    assert_eq!(
        violations("x\n`crates/gone` and `gone.rs`"),
        ["README.md:2: crates/gone does not exist", "README.md:2: gone.rs does not exist"]
    );
    assert_eq!(violations("[a](docs/gone.md)").len(), 1);
    let below = [("docs/a.md".to_owned(), "[a](../README.md#part), [b](../gone.md)".to_owned())].into();
    assert_eq!(rules::document_paths(&below, &paths), ["docs/a.md:1: ../gone.md does not exist"]);
}

#[test]
fn heading_rule_finds_links_to_parts_that_are_gone() {
    let documents = [
        ("a.md", "# One part: `x`\n[here](#one-part-x)\n[there](docs/b.md#two-parts)\n```\n# No part\n```\n"),
        ("docs/b.md", "## Two  parts\n[up](../a.md#no-part)\n"),
    ];
    let documents = documents.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    assert_eq!(
        rules::document_anchors(&documents),
        ["a.md:3: docs/b.md has no heading two-parts", "docs/b.md:2: a.md has no heading no-part"]
    );
}

#[test]
fn width_rule_finds_long_prose_and_no_tables_or_code() {
    let long = format!("a {}", "b".repeat(119));
    let violations = |text: &str| rules::document_widths(&[("a.md".to_owned(), text.to_owned())].into());
    holds(&violations(&format!("| {long} |\n    {long}\n```\n{long}\n```\n{}", &long[..120])));
    assert_eq!(violations(&format!("x\n{long}")), ["a.md:2: 121 columns, at most 120"]);
}
