//! Lines that a shell takes as they are.

use faultless_diagnosis::setting::Setting;

/// A variable of the user's own environment that a run went without, wholly or in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOut {
    /// Its name.
    pub variable: String,
    /// What of its value stayed.
    pub kept: Option<String>,
}

/// The command with settings before it, and without what was taken out of the environment.
#[must_use]
pub fn with_settings(taken_out: &[TakenOut], settings: &[Setting], command: &[String]) -> String {
    let is_set_anew = |own: &&TakenOut| settings.iter().any(|setting| setting.variable == own.variable);
    let own: Vec<&TakenOut> = taken_out.iter().filter(|own| !is_set_anew(own)).collect();
    let mut words: Vec<String> = Vec::new();
    let removed = own.iter().filter(|own| own.kept.is_none());
    words.extend(removed.map(|own| format!("-u {}", own.variable)));
    if !words.is_empty() {
        // What the shell itself cannot do for one command.
        words.insert(0, "env".into());
    }
    let kept = own.iter().filter_map(|own| Some((own.variable.as_str(), own.kept.as_ref()?)));
    let set = settings.iter().map(|setting| (setting.variable, &setting.value));
    words.extend(kept.chain(set).map(|(variable, value)| format!("{variable}={}", quoted(value))));
    words.push(line(command));
    words.join(" ")
}

/// The command as it is.
#[must_use]
pub fn line(command: &[String]) -> String {
    let mut words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    // Unquoted a shell would take `a=b` for a setting, and do nothing.
    if let Some(name) = words.first_mut().filter(|name| name.contains('=') && !name.starts_with('\'')) {
        *name = format!("'{name}'");
    }
    words.join(" ")
}

/// A line that reads this file, if there is one.
#[must_use]
pub fn with_input(line: String, file: Option<&str>) -> String {
    match file {
        Some(file) => format!("{line} < {}", quoted(file)),
        None => line,
    }
}

/// The command under the allocator.
#[must_use]
pub fn under_faultless(command: &[String]) -> String {
    format!("faultless run -- {}", line(command))
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
        assert_eq!(with_settings(&[], &[setting], &command[..1]), "MALLOC_TRIM_THRESHOLD_=1048576 sh");
        assert_eq!(line(&["a=b".into(), "c=d".into()]), "'a=b' c=d");
        assert_eq!(line(&["a =b".into()]), "'a =b'");
    }

    #[test]
    fn what_a_run_went_without_is_taken_out_by_the_line_too() {
        let own = |variable: &str, kept: Option<&str>| TakenOut {
            variable: variable.into(),
            kept: kept.map(str::to_owned),
        };
        let taken_out = [
            own("MALLOC_TRIM_THRESHOLD_", None),
            own("GLIBC_TUNABLES", None),
            own("LD_PRELOAD", Some("/a/b c.so")),
        ];
        let setting = Setting { variable: "MALLOC_TRIM_THRESHOLD_", value: "1048576".into() };
        let command = ["server".to_owned()];
        assert_eq!(
            with_settings(&taken_out, &[setting], &command),
            "env -u GLIBC_TUNABLES LD_PRELOAD='/a/b c.so' MALLOC_TRIM_THRESHOLD_=1048576 server"
        );
        assert_eq!(with_settings(&taken_out[2..], &[], &command), "LD_PRELOAD='/a/b c.so' server");
    }
}
