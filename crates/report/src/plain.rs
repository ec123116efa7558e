//! Text of others, made fit for one of our lines.

/// The text with its control characters written as escapes, so that it neither breaks a line nor steers a terminal; and marks that turn
/// the direction of writing, by which a name would rearrange the text around it, and what is no character in XML.
#[must_use]
pub fn plain(text: &str) -> String {
    let steers = |character: char| {
        character.is_control()
            || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    let escaped = |character: char| -> String {
        if steers(character) { character.escape_default().to_string() } else { character.to_string() }
    };
    text.chars().map(escaped).collect()
}

/// The text without the blanks that cells of tables leave at the ends of lines.
#[must_use]
pub fn trimmed(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        whole.push_str(line.trim_end_matches([' ', '\n']));
        whole.extend(line.ends_with('\n').then_some('\n'));
    }
    whole
}

/// Characters of a command that are shown: scripts given by `-c` may be as long as a file.
const COMMAND_CHARACTERS: usize = 200;

/// What was observed, on one line: as [`plain`], a long one cut.
#[must_use]
pub fn plain_subject(text: &str) -> String {
    match text.char_indices().nth(COMMAND_CHARACTERS) {
        None => plain(text),
        Some((end, _)) => format!("{}…", plain(&text[..end])),
    }
}

/// The text with lines longer than `columns` broken at blanks; what follows stands two columns further in.
#[must_use]
pub fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = String::new();
    for line in text.split_inclusive('\n') {
        let words = line.trim_start_matches(' ');
        let margin = " ".repeat(line.len() - words.len() + 2);
        let mut column = 0;
        let mut words = line.split_inclusive(' ').peekable();
        let mut is_first = true;
        let mut is_behind_number = false;
        while let Some(word) = words.next() {
            let mut width = word.trim_end().chars().count();
            let ends_in_digit = word.trim_end().ends_with(|last: char| last.is_ascii_digit());
            if let Some(unit) = words.peek().filter(|next| ends_in_digit && is_unit(next)) {
                width += 1 + unit.trim_end().chars().count();
            }
            let is_kept = is_first || is_behind_number && is_unit(word);
            is_first = false;
            is_behind_number = ends_in_digit;
            if !is_kept && column + width > columns && column > margin.len() {
                lines.truncate(lines.trim_end_matches(' ').len());
                lines.push('\n');
                lines.push_str(&margin);
                column = margin.len();
            }
            lines.push_str(word);
            column += word.chars().count();
        }
    }
    lines
}

/// Whether a word is the unit of the number before it, which is not parted from it.
fn is_unit(word: &str) -> bool {
    let bare = word.trim_end().trim_end_matches([',', ';', '.', ':', ')']);
    matches!(bare, "%" | "s" | "ms" | "µs" | "KiB" | "MiB" | "GiB" | "TiB")
}

/// The same where the width of the terminal is known, else as it is.
#[must_use]
pub fn fitted(text: String, columns: Option<usize>) -> String {
    match columns {
        Some(columns) => wrapped(&text, columns),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_letters_stay() {
        assert_eq!(plain("a\nb\x1b[2J\r\u{9b}"), "a\\nb\\u{1b}[2J\\r\\u{9b}");
        assert_eq!(plain("\t»é« 'x' \\"), "\\t»é« 'x' \\");
        assert_eq!(plain("a\u{202e}b\u{2067}\u{ffff}\u{fffd}"), "a\\u{202e}b\\u{2067}\\u{ffff}\u{fffd}");
    }

    #[test]
    fn of_a_long_command_the_beginning_is_shown() {
        assert_eq!(plain_subject(&"é".repeat(200)), "é".repeat(200));
        assert_eq!(plain_subject(&format!("a\n{}", "é".repeat(199))), format!("a\\n{}…", "é".repeat(198)));
    }

    #[test]
    fn long_lines_break_at_blanks_and_short_ones_stay() {
        assert_eq!(wrapped("  one two three\nfour\n\n", 9), "  one two\n    three\nfour\n\n");
        assert_eq!(wrapped("averyverylongword here\n", 9), "averyverylongword\n  here\n");
        assert_eq!(wrapped("as it is\n", 80), "as it is\n");
        assert_eq!(wrapped("»« ××\n", 5), "»« ××\n");
    }

    #[test]
    fn a_number_keeps_its_unit() {
        assert_eq!(wrapped("held with 75 % or more\n", 12), "held with\n  75 % or\n  more\n");
        assert_eq!(wrapped("held with 75 %, more\n", 12), "held with\n  75 %, more\n");
        assert_eq!(wrapped("all that s is\n", 10), "all that s\n  is\n");
    }
}
