//! Names of functions from `.symtab` and `.dynsym`.

use object::read::ReadRef;
use object::{Object, ObjectSymbol, SymbolKind};

/// Functions of a module by their addresses.
#[derive(Debug, Default)]
pub struct SymbolTable {
    /// Sorted by address; of several with the same address only one.
    functions: Vec<Function>,
}

#[derive(Debug)]
struct Function {
    start: u64,
    /// 0 when the file does not say: up to the next one then.
    length: u64,
    name: String,
}

impl SymbolTable {
    /// Reads the full table, or where it was stripped the exported names.
    pub(crate) fn read<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> Self {
        let mut functions: Vec<Function> = object
            .symbols()
            .chain(object.dynamic_symbols())
            .filter(|symbol| symbol.is_definition() && is_code(symbol.kind()))
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                Some(Function { start: symbol.address(), length: symbol.size(), name: name.to_owned() })
            })
            .collect();
        // Of aliases the one with a length, then the shortest name without underscores in front: `malloc`, not `__libc_malloc`.
        functions.sort_by(|a, b| {
            let rank = |function: &Function| {
                (function.length == 0, function.name.starts_with('_'), function.name.len())
            };
            a.start.cmp(&b.start).then_with(|| rank(a).cmp(&rank(b))).then_with(|| a.name.cmp(&b.name))
        });
        functions.dedup_by_key(|function| function.start);
        Self { functions }
    }

    /// Whether it has no functions at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function that holds this address, by its raw name.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<&str> {
        let place = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(place.checked_sub(1)?)?;
        let is_inside = function.length == 0 || address - function.start < function.length;
        is_inside.then_some(function.name.as_str())
    }
}

fn is_code(kind: SymbolKind) -> bool {
    matches!(kind, SymbolKind::Text | SymbolKind::Unknown)
}

/// The name as its language writes it.
#[must_use]
pub fn demangled(name: &str) -> String {
    // `memcpy@@GLIBC_2.14` is `memcpy` to whoever calls it.
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    demangled_from(name, None)
}

/// The name as this language writes it; without one, as the language that it seems to be of.
#[must_use]
pub fn demangled_from(name: &str, language: Option<gimli::DwLang>) -> String {
    // What does not begin so may be one of C++'s types without a name before it: `rd` would be `double restrict`.
    match name.starts_with('_') {
        true => addr2line::demangle_auto(name.into(), language).into_owned(),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(functions: &[(u64, u64, &str)]) -> SymbolTable {
        let functions = functions
            .iter()
            .map(|(start, length, name)| Function { start: *start, length: *length, name: (*name).into() })
            .collect();
        SymbolTable { functions }
    }

    #[test]
    fn addresses_between_functions_belong_to_none() {
        let table = table(&[(0x100, 0x10, "a"), (0x200, 0, "b"), (0x300, 0x10, "c")]);
        assert_eq!(table.function(0x10f), Some("a"));
        assert_eq!(table.function(0x110), None);
        assert_eq!(table.function(0x2ff), Some("b"));
        assert_eq!(table.function(0xff), None);
        assert_eq!(table.function(u64::MAX), None);
    }

    #[test]
    fn names_are_written_as_their_language_writes_them() {
        assert_eq!(demangled("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(
            demangled("_ZNSt6vectorIdSaIdEE7reserveEm"),
            "std::vector<double, std::allocator<double> >::reserve(unsigned long)"
        );
        assert_eq!(demangled("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangled("main"), "main");
        let of_cpp = Some(gimli::DW_LANG_C_plus_plus);
        for name in ["rd", "f", "i", "Pc", "_f", "_ZNi"] {
            assert_eq!((demangled(name), demangled_from(name, of_cpp)), (name.into(), name.into()));
        }
    }
}
