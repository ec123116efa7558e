//! The frame of a page, which loads nothing from anywhere, and text of others made fit for it.

use crate::plain::plain;

/// The page of a title, rules and a body, all in HTML; `may` is what its policy allows beside them, as `; script-src …`.
pub(crate) fn page(title: &str, style: &str, may: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'{may}\">\n\
         <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// The text fit for the content of an element and for a quoted attribute, with its control characters made visible.
///
/// Every name, message and path of a campaign passes through here: a saved campaign may come from anybody.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in plain(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_element_or_its_attribute() {
        assert_eq!(
            escape("</title><script>alert('x')</script>\" onload=\"&"),
            "&lt;/title&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot; onload=&quot;&amp;"
        );
        assert_eq!(escape("a\nb\u{0}\u{202e}c"), "a\\nb\\u{0}\\u{202e}c");
        assert_eq!(escape("»é« ×2"), "»é« ×2");
    }
}
