//! Why something does not work here, and what kind of refusal that is.

use std::fmt;
use std::io;

use faultless_records::permission::Answer;

use crate::perf::PerfError;

/// A refusal; shown as one line that says what would help.
#[derive(Debug)]
pub struct Refused {
    /// Whether more permissions would help, another kernel, or neither.
    pub answer: Answer,
    /// The line.
    pub reason: String,
}

impl Refused {
    pub(crate) fn new(answer: Answer, reason: impl Into<String>) -> Self {
        Self { answer, reason: reason.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reason)
    }
}

impl std::error::Error for Refused {}

impl From<PerfError> for Refused {
    fn from(error: PerfError) -> Self {
        let answer = match &error {
            PerfError::NoProbes(_) => Answer::Absent,
            error if error.is_refusal() => Answer::Denied,
            _ => Answer::Failed,
        };
        Self::new(answer, error.to_string())
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
        Self::new(if is_denied { Answer::Denied } else { Answer::Failed }, error.to_string())
    }
}

impl From<Refused> for String {
    fn from(refused: Refused) -> Self {
        refused.reason
    }
}
