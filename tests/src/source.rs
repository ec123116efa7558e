//! Rust source as lines of code and comments, told apart as far as the rules need.

/// One line of a Rust file.
#[derive(Debug, Default, Clone)]
pub struct Line {
    /// The code, with the contents of strings and characters left out.
    pub code: String,
    /// The contents of strings that stand on this line.
    pub strings: String,
    /// The text of comments, with what marks them.
    pub comment: String,
    /// Inside an item or a file that is only compiled for tests.
    pub is_test: bool,
}

/// A Rust file.
#[derive(Debug)]
pub struct Source {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    /// Its lines; the first is line 1.
    pub lines: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Code,
    LineComment,
    /// Nested so many times.
    BlockComment(u32),
    /// With so many `#` around; `None` for strings with escapes.
    String(Option<usize>),
}

impl Source {
    /// Reads the text of the file at `path`.
    #[must_use]
    pub fn parse(path: &str, text: &str) -> Source {
        let mut lines = split(text);
        let whole = path.contains("/tests/") || path.starts_with("tests/") || path.ends_with("/tests.rs");
        mark_tests(&mut lines, whole);
        Source { path: path.to_owned(), lines }
    }

    /// `path:number`, for messages.
    #[must_use]
    pub fn at(&self, index: usize) -> String {
        format!("{}:{}", self.path, index + 1)
    }
}

fn split(text: &str) -> Vec<Line> {
    let characters: Vec<char> = text.chars().collect();
    let (mut lines, mut line, mut inside, mut at) = (Vec::new(), Line::default(), Inside::Code, 0);
    while let Some(&character) = characters.get(at) {
        let rest = &characters[at..];
        at += 1;
        if character == '\n' {
            lines.push(std::mem::take(&mut line));
            if inside == Inside::LineComment {
                inside = Inside::Code;
            }
            continue;
        }
        match inside {
            Inside::LineComment => line.comment.push(character),
            Inside::BlockComment(depth) => {
                line.comment.push(character);
                if rest.starts_with(&['*', '/']) {
                    at += 1;
                    inside = if depth == 1 { Inside::Code } else { Inside::BlockComment(depth - 1) };
                } else if rest.starts_with(&['/', '*']) {
                    at += 1;
                    inside = Inside::BlockComment(depth + 1);
                }
            }
            Inside::String(hashes) => {
                let closing = rest[1..].iter().take_while(|&&next| next == '#').count();
                if character == '"' && closing >= hashes.unwrap_or(0) {
                    at += hashes.unwrap_or(0);
                    line.code.push('"');
                    inside = Inside::Code;
                } else {
                    line.strings.push(character);
                    if character == '\\' && hashes.is_none() && rest.get(1).is_some_and(|&next| next != '\n')
                    {
                        at += 1;
                    }
                }
            }
            Inside::Code if rest.starts_with(&['/', '/']) => {
                line.comment.push(character);
                inside = Inside::LineComment;
            }
            Inside::Code if rest.starts_with(&['/', '*']) => {
                at += 1;
                inside = Inside::BlockComment(1);
            }
            Inside::Code if character == '"' => {
                line.code.push('"');
                inside = Inside::String(None);
            }
            Inside::Code if is_raw_string(rest, line.code.chars().last()) => {
                let hashes = rest[1..].iter().take_while(|&&next| next == '#').count();
                at += hashes + 1;
                line.code.push('"');
                inside = Inside::String(Some(hashes));
            }
            Inside::Code => {
                line.code.push(character);
                at += character_literal(rest);
            }
        }
    }
    if !line.code.is_empty() || !line.comment.is_empty() {
        lines.push(line);
    }
    lines
}

fn is_raw_string(rest: &[char], before: Option<char>) -> bool {
    let is_start = before
        .is_none_or(|before| before == 'b' || before == 'c' || !(before.is_alphanumeric() || before == '_'));
    let quote = rest[1..].iter().find(|&&next| next != '#');
    is_start && rest[0] == 'r' && quote == Some(&'"')
}

/// How many characters follow the opening quote of a character literal, with the closing one; 0 if `rest` starts no literal.
fn character_literal(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', _, tail @ ..] => tail.iter().position(|&next| next == '\'').map_or(0, |end| end + 3),
        ['\'', _, '\'', ..] => 2,
        _ => 0,
    }
}

/// Marks the lines of items behind `#[cfg(test)]`, by their braces.
fn mark_tests(lines: &mut [Line], whole: bool) {
    let (mut depth, mut waits, mut ends_at) = (0_i64, false, None);
    for line in lines {
        let is_attribute = line.code.contains("#[cfg(test)]") || line.code.contains("#[cfg(all(test");
        waits |= is_attribute && ends_at.is_none();
        line.is_test = whole || waits || ends_at.is_some();
        for character in line.code.chars() {
            match character {
                '{' => {
                    if waits {
                        (waits, ends_at) = (false, Some(depth));
                    }
                    depth += 1;
                }
                '}' => {
                    depth -= 1;
                    if ends_at == Some(depth) {
                        ends_at = None;
                    }
                }
                ';' if waits => waits = false,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_comments_and_characters_are_told_from_code() {
        let text = "let a = \"unsafe { // no\"; // yes unsafe {\nlet b = r#\"x \" y\"#; let c = '\"'; let d: &'a str; /* one\ntwo */ code";
        let source = Source::parse("crates/x/src/lib.rs", text);
        assert_eq!(source.lines[0].code, "let a = \"\"; ");
        assert_eq!(source.lines[0].strings, "unsafe { // no");
        assert_eq!(source.lines[0].comment, "// yes unsafe {");
        assert_eq!(source.lines[1].code, "let b = \"\"; let c = '; let d: &'a str; ");
        assert_eq!(source.lines[2].code, " code");
    }

    #[test]
    fn items_for_tests_are_marked_to_their_end() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod far;\nfn d() {}";
        let source = Source::parse("crates/x/src/lib.rs", text);
        let marked: Vec<bool> = source.lines.iter().map(|line| line.is_test).collect();
        assert_eq!(marked, [false, true, true, true, true, false, true, true, false]);
    }
}
