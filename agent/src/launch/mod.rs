//! How a program is started.
//!
//! The agent re-executes itself as `storlab-agent launch SPEC ARGV…`, in the run's cgroup from the first instant
//! ([`crate::sys::spawn_into`]). That process prepares everything ([`become_program`]), tells over a pipe how it went
//! ([`Report`]), and becomes the program at the agreed instant. So nothing that may block (a named pipe to open, a
//! directory on a dead server) blocks the event loop, and nothing but system calls runs between fork and exec.

mod shim;
mod spawn;

pub use shim::become_program;
pub use shim::find_program;
pub use shim::{LaunchSpec, Report, Step};
pub use spawn::{Launched, launch};
