//! Names of signals.

/// Those of Linux on x86-64 and aarch64, from the first on. Source: signal(7).
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Name of a signal, such as `SIGSEGV`; one that has none is told by its number.
#[must_use]
pub fn name(number: i32) -> String {
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    match place.and_then(|place| NAMES.get(place)) {
        Some(name) => (*name).to_owned(),
        None => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_unknown_ones_numbers() {
        assert_eq!([1, 9, 11, 15, 31].map(name), ["SIGHUP", "SIGKILL", "SIGSEGV", "SIGTERM", "SIGSYS"]);
        assert_eq!([0, -1, 32, 60].map(name), ["signal 0", "signal -1", "signal 32", "signal 60"]);
    }
}
