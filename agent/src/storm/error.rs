//! What ends a storm before its time.

use std::path::PathBuf;

use nix::errno::Errno;
use serde::{Serialize, Serializer};

/// What went wrong, as the document tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{phase}: {operation} {}: {reason}", path.display())]
pub struct StormError {
    pub phase: &'static str,
    pub operation: &'static str,
    pub path: PathBuf,
    #[serde(flatten)]
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The kernel refused it.
    #[error("{} ({:?})", .0.desc(), .0)]
    #[serde(serialize_with = "errno_name")]
    Errno(Errno),
    /// The file system gave back something else than it was given.
    #[error("{0}")]
    Mismatch(String),
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

fn errno_name<S: Serializer>(errno: &Errno, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{errno:?}"))
}
