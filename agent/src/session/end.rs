//! How a session ends.

use std::process::ExitCode;

use nix::errno::Errno;

use crate::stream::StreamError;

/// How a session ended. Whatever it was, all that it started is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Shutdown,
    /// Nobody is at the other end any more.
    Closed,
    /// The stream holds what can't be understood.
    Broken(String),
    Refused(String),
    Signal(i32),
    /// The controller was silent for the seconds of its lease.
    Silence(u64),
}

impl End {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Shutdown | Self::Closed => ExitCode::SUCCESS,
            Self::Broken(_) | Self::Refused(_) => ExitCode::from(3),
            Self::Silence(_) => ExitCode::from(4),
            // As a shell would report it.
            Self::Signal(number) => ExitCode::from(128 + (*number & 0x7f) as u8),
        }
    }
}

/// A session that can't be held.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// It can't be waited for.
    #[error("can't watch the stream: {}; standard input and output must be pipes, sockets or devices", .0.desc())]
    Unwatchable(#[from] Errno),
}
