//! Parts of a function's name as it is demangled: `std::vector<int> shop::load<int>(char const*)`.

/// The name without the type of its answer, which demangled templates begin with. Where no parameters follow, as in
/// `JS:*load /srv/a.js:1`, what stands before a blank is no type.
#[must_use]
pub fn without_answer_type(name: &str) -> &str {
    let mut start = 0;
    for (place, byte) in top_level(name) {
        // The type that a conversion is to belongs to its name, as `new` does.
        if byte == b' ' && !is_operator(&name[start..place]) {
            start = place + 1;
        }
        if byte == b'(' && is_parameters(name, place) {
            return if place > start { &name[start..] } else { name };
        }
    }
    name
}

/// The same with `…` for arguments of templates and for parameters.
#[must_use]
pub fn without_arguments(name: &str) -> String {
    let name = without_answer_type(name);
    let mut short = String::new();
    let mut written = 0;
    let mut end = 0;
    for (place, byte) in top_level(name).filter(|(_, byte)| matches!(byte, b'<' | b'(')) {
        if place < end {
            continue;
        }
        let is_arguments = match byte {
            b'(' => is_parameters(name, place),
            // In front of it stands nothing where it is a type itself, as in `<T as Trait>::f`.
            _ => name[..place].ends_with(|before: char| before.is_ascii_alphanumeric() || before == '_'),
        };
        end = closing(name, place);
        if is_arguments && end > place + 2 {
            short.push_str(&name[written..=place]);
            short.push('…');
            written = end - 1;
        }
    }
    short + &name[written..]
}

/// Its last part: the name without namespaces and classes; that of a lambda with the function that it stands in.
#[must_use]
pub fn last_part(name: &str) -> &str {
    let mut start = 0;
    for (place, byte) in top_level(name) {
        if byte == b':' && name[place + 1..].starts_with(':') {
            if name[place + 2..].starts_with('{') {
                break;
            }
            start = place + 2;
        }
        if byte == b'(' && is_parameters(name, place) {
            break;
        }
    }
    &name[start..]
}

const ANONYMOUS: &str = "(anonymous namespace)";

fn is_operator(part: &str) -> bool {
    part.match_indices("operator").any(|(place, word)| {
        let (before, after) = (&part[..place], &part[place + word.len()..]);
        let is_longer = after.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
        (before.is_empty() || before.ends_with("::")) && !is_longer
    })
}

/// Whether what begins with this parenthesis are parameters, and no name or type; of Go's `shop.(*Table).grow` it is a type.
fn is_parameters(name: &str, place: usize) -> bool {
    let before = name[..place].trim_end();
    let is_call_operator = before.ends_with("operator") && name[place..].starts_with("()");
    let is_type = ["decltype", "."].iter().any(|end| before.ends_with(end));
    !name[place..].starts_with(ANONYMOUS) && !is_type && !is_call_operator
}

/// Whether a parenthesis stands outside of all other brackets: of parameters or an anonymous namespace of C++. Names of Rust have none.
#[must_use]
pub fn has_parentheses(name: &str) -> bool {
    top_level(name).any(|(_, byte)| byte == b'(')
}

/// The bytes that stand in no brackets, opening ones among them.
fn top_level(name: &str) -> impl Iterator<Item = (usize, u8)> {
    let mut end = 0;
    name.bytes().enumerate().filter(move |(place, byte)| {
        if *place < end {
            return false;
        }
        end = match byte {
            b'<' | b'(' | b'[' | b'{' => closing(name, *place),
            _ => place + 1,
        };
        true
    })
}

/// The place behind the bracket that closes this one; behind this one when none does, as in `operator<`.
fn closing(name: &str, place: usize) -> usize {
    let mut open: Vec<u8> = Vec::new();
    let bytes = name.as_bytes();
    for (place, byte) in name.bytes().enumerate().skip(place) {
        match byte {
            b'<' => open.push(b'>'),
            b'(' => open.push(b')'),
            b'[' => open.push(b']'),
            b'{' => open.push(b'}'),
            // The arrow of `->` closes nothing, nor does what compares inside parentheses.
            b'>' if bytes[place - 1] != b'-' && open.last() == Some(&b'>') => drop(open.pop()),
            b')' | b']' | b'}' => {
                let Some(opened) = open.iter().rposition(|closing| *closing == byte) else { break };
                open.truncate(opened);
            }
            _ => {}
        }
        if open.is_empty() {
            return place + 1;
        }
    }
    place + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_loses_the_type_of_its_answer_and_nothing_else() {
        for (name, expected) in [
            (
                "void std::__new_allocator<long>::construct<long, long>(long*, long&&)",
                "std::__new_allocator<long>::construct<long, long>(long*, long&&)",
            ),
            ("std::vector<int, std::allocator<int> > load<int>(int)", "load<int>(int)"),
            ("unsigned long shop::sum<(3)>(2)>(long const*) const", "shop::sum<(3)>(2)>(long const*) const"),
            ("decltype (f({parm#1})) run<int>(int)", "run<int>(int)"),
            ("void (anonymous namespace)::fill<int>(int*)", "(anonymous namespace)::fill<int>(int*)"),
            ("operator new(unsigned long)", "operator new(unsigned long)"),
            ("shop::Name::operator std::string() const", "shop::Name::operator std::string() const"),
            (
                "main::{lambda(char, int)#1}::operator()(char, int) const",
                "main::{lambda(char, int)#1}::operator()(char, int) const",
            ),
            (
                "<alloc::vec::Vec<u8> as core::clone::Clone>::clone",
                "<alloc::vec::Vec<u8> as core::clone::Clone>::clone",
            ),
            ("load_table(unsigned int)", "load_table(unsigned int)"),
            ("memcpy", "memcpy"),
            ("bool operator< <int>(int, int)", "operator< <int>(int, int)"),
            ("JS:*load /srv/a.js:10:3", "JS:*load /srv/a.js:10:3"),
            ("py::load:/srv/my shop/a.py", "py::load:/srv/my shop/a.py"),
            ("void shop.Table.load(int, java.util.List)", "shop.Table.load(int, java.util.List)"),
            ("", ""),
        ] {
            assert_eq!(without_answer_type(name), expected);
        }
    }

    #[test]
    fn arguments_are_left_out_and_the_functions_own_name_stays() {
        for (name, expected) in [
            (
                "void std::__new_allocator<long>::construct<long, long>(long*, long&&)",
                "std::__new_allocator<…>::construct<…>(…)",
            ),
            ("shop::Table<std::map<int, long> >::grow()", "shop::Table<…>::grow()"),
            (
                "<alloc::vec::Vec<u8> as core::clone::Clone>::clone",
                "<alloc::vec::Vec<u8> as core::clone::Clone>::clone",
            ),
            ("Pool::operator()(int) const", "Pool::operator()(…) const"),
            ("example.org/shop.(*Table).grow", "example.org/shop.(*Table).grow"),
            ("JS:*load /srv/a.js:10:3", "JS:*load /srv/a.js:10:3"),
            ("memcpy", "memcpy"),
        ] {
            assert_eq!(without_arguments(name), expected);
        }
        assert_eq!(last_part("std::__new_allocator<…>::construct<…>(a::b)"), "construct<…>(a::b)");
        assert_eq!(last_part("memcpy"), "memcpy");
        assert_eq!(last_part("shop::load::{lambda}::operator()"), "load::{lambda}::operator()");
        assert_eq!(last_part("shop::load::{{closure}}"), "load::{{closure}}");
    }

    #[test]
    fn any_text_is_a_name() {
        for name in ["<", ">", "(((", "a<b", "->", "operator", "…<…>(…", "::", "a (", " ", "operator->"]
        {
            let _ = (without_answer_type(name), without_arguments(name), last_part(name));
        }
    }
}
