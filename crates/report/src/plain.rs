//! Text of others, made fit for one of our lines.

/// The text with its control characters written as escapes, so that it neither breaks a line nor steers a terminal.
#[must_use]
pub fn plain(text: &str) -> String {
    let escaped = |character: char| -> String {
        if character.is_control() && character != '\t' {
            character.escape_default().to_string()
        } else {
            character.to_string()
        }
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_letters_stay() {
        assert_eq!(plain("a\nb\x1b[2J\r\u{9b}"), "a\\nb\\u{1b}[2J\\r\\u{9b}");
        assert_eq!(plain("\t»é« 'x' \\"), "\t»é« 'x' \\");
    }
}
