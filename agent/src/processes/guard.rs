//! The process that outlives an agent which was killed, to end what then is left of its runs.
//!
//! The kernel kills a run when its agent dies (`PR_SET_PDEATHSIG`), unless the program has become another user
//! meanwhile, as QEMU and servers do: that takes the signal back (`prctl(2)`). These are found in the agent's cgroup.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, PipeWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::prctl;

use super::cgroup::AgentCgroup;

/// For what an agent left to die. The agent itself waits for a moment only: whoever stopped it waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whoever holds it is alive, as far as the guard knows: the pipe that is the guard's standard input.
#[derive(Debug)]
pub struct Guard {
    _alive: PipeWriter,
}

impl Guard {
    /// Starts the guard of this agent. The session reaps it, should it be killed.
    pub fn start(cgroup: &AgentCgroup) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("storlab-agent").arg("guard").arg(cgroup.path()).arg(std::process::id().to_string());
        // A group of its own: a Ctrl-C at the terminal is not meant for it.
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()?;
        Ok(Self { _alive: writer })
    }
}

/// Waits until the agent is no more, and ends what it has left in its cgroup.
pub fn guard(cgroup: &OsStr, agent: u32) -> ExitCode {
    let _ = prctl::set_name(c"storlab-guard");
    // It keeps no folder in use, and so none from being unmounted.
    let _ = std::env::set_current_dir("/");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    if fs::exists(Path::new(cgroup)).unwrap_or(false) {
        AgentCgroup::left_by(cgroup, agent).remove(PATIENCE);
    }
    ExitCode::SUCCESS
}
