//! Names of C++'s functions by the scopes that they stand in, where debug information gives none for the linker, or one that cannot
//! be read: what gcc puts into an anonymous namespace, lambdas in there, and what templates of a library become for those.

use std::cell::OnceCell;
use std::sync::Arc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, UnitHeader, UnitOffset};

use crate::debug_info::Reader;
use crate::symbol_table::demangled_from;

/// References and scopes that are followed from one function: more than any program has.
const STEPS: usize = 64;

/// A type without a name; lambdas are such.
const UNNAMED: &str = "{unnamed type}";

/// The scopes in the debug information of one file.
pub(crate) struct Scopes {
    dwarf: Arc<Dwarf<Reader>>,
    units: Vec<Unit>,
    /// Those of the file that it may refer to (`dwz`).
    supplement: Option<Box<Self>>,
}

struct Unit {
    header: UnitHeader<Reader>,
    /// Read at the first question.
    opened: OnceCell<Option<Opened>>,
}

struct Opened {
    unit: gimli::Unit<Reader>,
    /// Sorted by their places.
    scopes: Vec<Scope>,
}

/// A namespace, class or function.
struct Scope {
    offset: UnitOffset,
    /// That which it stands in.
    parent: Option<UnitOffset>,
}

impl Scopes {
    pub(crate) fn new(dwarf: Arc<Dwarf<Reader>>) -> Self {
        let mut headers = dwarf.units();
        let units = std::iter::from_fn(|| headers.next().ok().flatten())
            .map(|header| Unit { header, opened: OnceCell::new() })
            .collect();
        let supplement = dwarf.sup.clone().map(|supplement| Box::new(Self::new(supplement)));
        Self { dwarf, units, supplement }
    }

    /// The name of a function whose description stands here, with all that it stands in; none where it has none.
    pub(crate) fn name(&self, function: DebugInfoOffset) -> Option<String> {
        self.name_within(function, STEPS)
    }

    fn name_within(&self, place: DebugInfoOffset, steps: usize) -> Option<String> {
        let steps = steps.checked_sub(1)?;
        let unit = self.units.get(self.units.partition_point(|unit| start(unit) <= place).checked_sub(1)?)?;
        let Opened { unit, scopes } = unit.opened.get_or_init(|| open(&self.dwarf, &unit.header)).as_ref()?;
        let offset = place.to_unit_offset(&unit.header)?;
        let entry = unit.entry(offset).ok()?;
        let text = |name| {
            let text = self.dwarf.attr_string(unit, entry.attr_value(name)?).ok()?;
            Some(String::from_utf8_lossy(text.bytes()).into_owned())
        };
        if let Some(mangled) = text(gimli::DW_AT_linkage_name) {
            let name = demangled_from(&mangled, Some(gimli::DW_LANG_C_plus_plus));
            if name != mangled {
                return Some(name);
            }
        }
        let described = |by| entry.attr_value(by);
        match described(gimli::DW_AT_abstract_origin).or_else(|| described(gimli::DW_AT_specification)) {
            Some(AttributeValue::UnitRef(to)) => {
                return self.name_within(to.to_debug_info_offset(&unit.header)?, steps);
            }
            Some(AttributeValue::DebugInfoRef(to)) => return self.name_within(to, steps),
            Some(AttributeValue::DebugInfoRefSup(to)) => {
                return self.supplement.as_ref()?.name_within(to, steps);
            }
            _ => {}
        }
        let own = match (text(gimli::DW_AT_name), entry.tag()) {
            (Some(name), _) => name,
            (None, gimli::DW_TAG_namespace) => "(anonymous namespace)".into(),
            (None, gimli::DW_TAG_subprogram) => return None,
            (None, _) => UNNAMED.into(),
        };
        let known = scopes.binary_search_by_key(&offset.0, |scope| scope.offset.0).ok();
        let parent = known.and_then(|known| scopes[known].parent);
        let around =
            parent.and_then(|parent| self.name_within(parent.to_debug_info_offset(&unit.header)?, steps));
        Some(match around {
            None => own,
            Some(around) => match around.strip_suffix(UNNAMED).filter(|_| own.starts_with("operator()")) {
                Some(function) => format!("{function}{{lambda}}::{own}"),
                None => format!("{around}::{own}"),
            },
        })
    }
}

fn start(unit: &Unit) -> DebugInfoOffset {
    unit.header.debug_info_offset().unwrap_or(DebugInfoOffset(0))
}

fn open(dwarf: &Dwarf<Reader>, header: &UnitHeader<Reader>) -> Option<Opened> {
    let unit = dwarf.unit(header.clone()).ok()?;
    let scopes = scopes(&unit);
    Some(Opened { unit, scopes })
}

/// Those of a unit; where it is damaged, those in front of that.
fn scopes(unit: &gimli::Unit<Reader>) -> Vec<Scope> {
    let mut scopes = Vec::new();
    let Ok(mut entries) = unit.entries_raw(None) else { return scopes };
    // Depths and places of the scopes around the next entry.
    let mut around: Vec<(isize, UnitOffset)> = Vec::new();
    while !entries.is_empty() {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let Ok(abbreviation) = entries.read_abbreviation() else { break };
        let Some(abbreviation) = abbreviation else { continue };
        if entries.skip_attributes(abbreviation.attributes()).is_err() {
            break;
        }
        if is_scope(abbreviation.tag()) {
            around.truncate(around.partition_point(|(outer, _)| *outer < depth));
            scopes.push(Scope { offset, parent: around.last().map(|(_, parent)| *parent) });
            around.push((depth, offset));
        }
    }
    scopes
}

fn is_scope(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_subprogram
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::{self, File};
    use std::process::Command;

    use faultless_records::perf_record::FileIdentity;

    use crate::modules::{Found, Modules};

    const PROGRAM: &str = r"
        #include <algorithm>
        #include <type_traits>
        template <class T> __attribute__((noinline))
        typename std::enable_if<std::__is_scalar<T>::__value, void>::type put(T *t) { *t = 1; }
        namespace shop {
        struct Table { void grow(char *p); };
        namespace {
        __attribute__((noinline)) void fill(char *p) { std::for_each(p, p + 100, [](char &c) { c = 1; }); }
        __attribute__((noinline)) void sort(char *p) { std::sort(p, p + 100, [](char a, char b) { return a > b; }); }
        struct Row { __attribute__((noinline)) void clear(char *p) { *p = 2; } };
        }
        void Table::grow(char *p) { fill(p); sort(p); Row().clear(p); }
        }
        int main(int n, char **v) { shop::Table().grow(v[0]); put(&n); }
    ";

    /// Names of all functions in a program of C++ that the compiler makes of these options.
    fn names(options: &[&str], name: &str) -> BTreeSet<String> {
        let place = std::env::temp_dir().join(format!("faultless-scopes-{name}-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let (source, program) = (place.join("a.cc"), place.join("a"));
        fs::write(&source, PROGRAM).unwrap();
        let status = Command::new("c++").args(options).arg("-o").arg(&program).arg(&source).status().unwrap();
        assert!(status.success());
        let mut modules = Modules::default();
        let found = || Ok(Found { file: File::open(&program).unwrap(), roots: Vec::new() });
        let unknown = FileIdentity::Inode { device: (0, 0), inode: 0 };
        let at = modules.place("a", &unknown, found);
        let code = modules.module(at).unwrap().unwinding.text.clone().unwrap();
        let frames = code.flat_map(|address| modules.frames(at, address));
        let names = frames.filter_map(|frame| frame.function).collect();
        fs::remove_dir_all(&place).unwrap();
        names
    }

    #[test]
    fn functions_without_a_name_for_the_linker_have_one_with_their_scopes() {
        for options in [["-O0", "-gdwarf-4"], ["-O2", "-gdwarf-5"]] {
            let names = names(&options, options[0]);
            for expected in [
                "shop::(anonymous namespace)::fill",
                "shop::(anonymous namespace)::fill::{lambda}::operator()",
                "shop::(anonymous namespace)::Row::clear",
                "shop::Table::grow(char*)",
                "main",
            ] {
                assert!(names.contains(expected), "{expected}: {names:#?}");
            }
            let bare = |name: &String| {
                ["for_each<", "operator()", "__introsort_loop<"].iter().any(|start| name.starts_with(start))
                    || name.starts_with("_Z")
            };
            assert!(!names.iter().any(bare), "{names:#?}");
        }
    }
}
