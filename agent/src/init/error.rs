//! Why a guest can't go on. Each is one sentence on its console, and then the guest powers off.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use super::cmdline::CmdlineError;

/// Whatever keeps a guest's init from reaching a served controller.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// Started by hand: it would unmount and delete what isn't its own.
    #[error("init is for the kernel of a guest, as process 1 in an initramfs; it has done nothing")]
    NotInGuest,
    #[error(transparent)]
    Cmdline(#[from] CmdlineError),
    #[error("can't mount {what}: {errno}")]
    Mount {
        /// Which, and where.
        what: String,
        errno: Errno,
    },
    #[error("can't mount layer {index} ({disk:?}): {tried}")]
    Layer {
        index: usize,
        disk: PathBuf,
        /// Which file systems, and what each said.
        tried: String,
    },
    /// A device that the launcher should have given the guest.
    #[error("{what} has not appeared within {seconds} s; /sys shows only: {present}")]
    Missing { what: String, seconds: u64, present: String },
    #[error("can't {action} {path:?}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// The system call has nothing to do with a file.
    #[error("can't {action}: {errno}")]
    System { action: &'static str, errno: Errno },
    #[error("can't read the port to the host: {0}")]
    Port(io::Error),
    /// The host's end closed before the agent was started.
    #[error("the host closed the port before it had sent its preamble")]
    HostGone,
    /// The host speaks another protocol, or none.
    #[error("the first bytes on the port are no preamble \"storlab-renew/1\"")]
    Preamble,
    #[error("can't start the agent: {0}")]
    Agent(io::Error),
}

impl InitError {
    /// For `map_err` of a system call.
    pub fn system(action: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System { action, errno }
    }

    /// For `map_err` of a file's operation.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
