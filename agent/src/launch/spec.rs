//! What the agent tells the shim, and what the shim tells the agent.

use serde::{Deserialize, Serialize};

use crate::confine::Confinement;

/// What the shim has to do, given to it as JSON on its command line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The pipe for [`Report`]s.
    pub report_fd: i32,
    /// The agent's number: a shim whose parent is another has lost its agent.
    pub agent: i32,
    /// How it comes to be in the run's cgroup, where there is one.
    pub cgroup: Option<Membership>,
    /// What alone it may write to.
    pub confine: Option<Confinement>,
    pub cwd: Option<String>,
    pub stdout_file: Option<String>,
    pub stderr_file: Option<String>,
    /// A pipe whose end it waits for, once it is ready: only then are its counters open.
    pub go_fd: Option<i32>,
    /// When to become the program, on `CLOCK_MONOTONIC`.
    pub start_at_ns: Option<i64>,
}

/// How a process comes to be in a cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Membership {
    /// It has been in it from its first instant.
    Born,
    /// It moves into this directory, for which the kernel lets it wait until every CPU has passed by (RCU).
    Join(String),
}

/// What the shim tells, one JSON object a line. The end of the pipe after `Executing` means that the program runs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    Ready {
        in_cgroup: bool,
        /// It is confined; `None` where that wasn't asked for.
        confined: Option<bool>,
        /// The number of the process that becomes the program, where it is not the first.
        number: Option<i32>,
    },
    Executing {
        /// Now, on `CLOCK_MONOTONIC`.
        start_ns: u64,
        /// How long after the agreed instant.
        late_ns: Option<u64>,
        /// What the shim itself has used in user mode, which isn't the program's.
        user_ns: u64,
        /// What the shim itself has used in the kernel.
        system_ns: u64,
    },
    /// It can't be done.
    Failed {
        /// What can't.
        step: Step,
        errno: i32,
    },
    /// It can't be confined.
    Unconfined { why: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Stdout,
    Stderr,
    Directory,
    Execute,
}
