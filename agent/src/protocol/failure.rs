//! What an `error` event says.

use std::io;

use nix::errno::Errno;
use serde::Serialize;

/// Why a request could not be served, in the form in which the controller learns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub message: String,
    /// Symbolic name of the system's error, where there is one: `"ENOENT"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), errno: None }
    }

    /// A failure with the error that describes it best, reported or not.
    pub fn errno(message: impl AsRef<str>, errno: Errno) -> Self {
        Self {
            message: format!("{}: {}", message.as_ref(), errno.desc()),
            errno: (errno != Errno::UnknownErrno).then(|| format!("{errno:?}")),
        }
    }

    /// What a call of the standard library reported.
    pub fn io(message: impl AsRef<str>, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::errno(message, Errno::from_raw(number)),
            None => Self::new(format!("{}: {error}", message.as_ref())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_error_keeps_its_symbolic_name() {
        let failure = Failure::io("can't open \"/x\"", &io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(failure.errno.as_deref(), Some("ENOSPC"));
        assert_eq!(failure.message, "can't open \"/x\": No space left on device");
    }

    #[test]
    fn a_failure_without_errno_leaves_it_out() {
        assert_eq!(serde_json::to_string(&Failure::new("no")).unwrap(), r#"{"message":"no"}"#);
    }
}
