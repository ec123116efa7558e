//! Lines that a shell takes as they are.

use faultless_diagnosis::setting::Setting;

/// The command with settings before it.
#[must_use]
pub fn with_settings(settings: &[Setting], command: &[String]) -> String {
    let mut words: Vec<String> =
        settings.iter().map(|setting| format!("{}={}", setting.variable, quoted(&setting.value))).collect();
    words.extend(command.iter().map(|word| quoted(word)));
    words.join(" ")
}

/// The command under the allocator.
#[must_use]
pub fn under_faultless(command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    format!("faultless run -- {}", words.join(" "))
}

/// A word as a POSIX shell needs it.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_a_shell_needs_it() {
        let command: Vec<String> = ["sh", "-c", "echo 'a b'", ""].map(String::from).to_vec();
        assert_eq!(under_faultless(&command), r"faultless run -- sh -c 'echo '\''a b'\''' ''");
        let setting = Setting { variable: "MALLOC_TRIM_THRESHOLD_", value: "1048576".into() };
        assert_eq!(with_settings(&[setting], &command[..1]), "MALLOC_TRIM_THRESHOLD_=1048576 sh");
    }
}
