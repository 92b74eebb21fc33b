//! Which processes belong to a run, and how all of them are killed.

mod cgroup;
mod family;
mod guard;
pub mod oom;
mod table;

pub use cgroup::{AgentCgroup, RunCgroup, locate};
pub use family::{Family, MARKER};
pub use guard::{Guard, guard};
pub use table::{Process, descendants, kill_descendants, parse_stat, snapshot};
