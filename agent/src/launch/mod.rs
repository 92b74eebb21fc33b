//! How a program is started.
//!
//! The agent doesn't fork: it re-executes itself as `storlab-agent launch SPEC ARGV…`, which prepares everything
//! in a process of its own ([`become_program`]), tells over a pipe how it went ([`Report`]), and becomes the
//! program at the agreed instant. So nothing that may block (a named pipe to open, a directory on a dead server)
//! blocks the event loop, and no code runs between fork and exec.

mod program;
mod shim;
mod spawn;
mod spec;

pub use program::find_program;
pub use shim::become_program;
pub use spawn::{Launched, launch};
pub use spec::{LaunchSpec, Report, Step};
