//! Names of Rust's functions without their paths: all that debug information has where it is reduced to lines (`debug =
//! "line-tables-only"`). The table of symbols has the paths of functions with code of their own; of those of Rust's library that were
//! inlined the source file tells.

/// The name with its path: by the symbol at the function's own code, as its language writes it, else by its source file. None where
/// it has one, or neither tells.
pub(crate) fn with_path(name: &str, symbol: Option<&str>, file: Option<&str>) -> Option<String> {
    let base = name.split('<').next().filter(|base| !base.is_empty() && !base.contains([':', '(']))?;
    let of_symbol = symbol.filter(|symbol| is_symbol_of(symbol, base)).map(str::to_owned);
    of_symbol.or_else(|| Some(format!("{}::{name}", path_in_library(file?)?)))
}

/// Whether this is the path of a function of that name. Parameters are C++'s, whose names have their paths anyway.
fn is_symbol_of(symbol: &str, base: &str) -> bool {
    let is_closure = |last: &str| base.starts_with("{closure") && last.starts_with("{");
    let last = symbol.split("::<").next().and_then(|path| path.rsplit_once("::")).map(|(_, last)| last);
    !symbol.contains('(') && last.is_some_and(|last| last == base || is_closure(last))
}

/// Which module of Rust's library a source file is: of `/rustc/…/library/core/src/ptr/mod.rs` `core::ptr`.
fn path_in_library(file: &str) -> Option<String> {
    let of_sources = || file.split_once("/lib/rustlib/src/rust/").map(|(_, inside)| inside);
    let inside = file.strip_prefix("/rustc/").or_else(of_sources)?;
    let (library, rest) = inside.split_once("library/")?.1.split_once("/src/")?;
    let modules = rest.strip_suffix(".rs")?.split('/').filter(|part| !matches!(*part, "mod" | "lib"));
    let path: Vec<&str> = std::iter::once(library).chain(modules).collect();
    (!library.contains('/')).then(|| path.join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_the_path_of_its_symbol_and_one_of_the_library_that_of_its_file() {
        let of_core = Some("/rustc/5980/library/core/src/ptr/mod.rs");
        let installed = Some("/opt/r/lib/rustlib/src/rust/library/alloc/src/fmt.rs");
        let own = Some("/srv/shop/src/main.rs");
        for (name, symbol, file, expected) in [
            ("load", Some("shop::Table::load"), own, Some("shop::Table::load")),
            ("load<u8>", Some("shop::load::<u8>"), own, Some("shop::load::<u8>")),
            ("{closure#0}", Some("shop::names::{{closure}}"), own, Some("shop::names::{{closure}}")),
            (
                "fmt",
                Some("<shop::Name as core::fmt::Display>::fmt"),
                own,
                Some("<shop::Name as core::fmt::Display>::fmt"),
            ),
            ("write<[u8; 4096]>", None, of_core, Some("core::ptr::write<[u8; 4096]>")),
            ("{closure#0}", None, installed, Some("alloc::fmt::{closure#0}")),
            ("write", Some("shop::load"), of_core, Some("core::ptr::write")),
            // Of another function, of C, of C++, with a path already.
            ("load", Some("shop::unload"), own, None),
            ("load", Some("load"), own, None),
            ("load", Some("shop::load(int)"), own, None),
            ("shop::load", Some("x::shop::load"), of_core, None),
            ("<shop::Name as core::fmt::Display>::fmt", None, of_core, None),
            ("load", None, None, None),
        ] {
            assert_eq!(with_path(name, symbol, file).as_deref(), expected, "{name} {symbol:?}");
        }
    }
}
