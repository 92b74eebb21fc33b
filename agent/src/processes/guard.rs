//! The process that outlives an agent which was killed, to end what then is left of its runs.
//!
//! The kernel kills a run when its agent dies (`PR_SET_PDEATHSIG`), unless the program has become another user
//! meanwhile, as QEMU and servers do: that takes the signal back (`prctl(2)`). These are found in the agent's cgroup.
//!
//! An agent with a lease sends word for as long as it hears its controller. Where that stops, and the agent doesn't end
//! by itself, because it is stopped or hangs in the kernel, the guard kills it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup::AgentCgroup;

/// For what an agent left to die. The agent itself waits for a moment only: whoever stopped it waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whoever holds it is alive, as far as the guard knows: the pipe that is the guard's standard input.
#[derive(Debug)]
pub struct Guard {
    alive: PipeWriter,
}

/// For an agent whose lease has ended to end by itself.
const MARGIN: Duration = Duration::from_secs(5);
/// A word of the agent's: the nanoseconds until the next.
const WORD: usize = size_of::<u64>();

impl Guard {
    /// Starts the guard of this agent. The session reaps it, should it be killed.
    pub fn start(cgroup: &AgentCgroup) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("storlab-agent").arg("guard").arg(cgroup.path()).arg(std::process::id().to_string());
        // A group of its own: a Ctrl-C at the terminal is not meant for it.
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()?;
        // A guard that is stopped must not stop its agent.
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { alive: writer })
    }

    /// Tells it that the agent lives, and will say so again within so many nanoseconds.
    pub fn expect_again_within(&mut self, length: u64) {
        let _ = self.alive.write_all(&length.to_ne_bytes());
    }
}

/// Waits until the agent is no more, and ends what it has left in its cgroup.
pub fn guard(cgroup: &OsStr, agent: u32) -> ExitCode {
    let _ = prctl::set_name(c"storlab-guard");
    // It keeps no folder in use, and so none from being unmounted.
    let _ = std::env::set_current_dir("/");
    // Past the buffer of the standard library's: what waits there, poll(2) doesn't see.
    let Ok(words) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    if !agent_ends(&mut File::from(words)) {
        let _ = i32::try_from(agent).map(|agent| kill(Pid::from_raw(agent), Signal::SIGKILL));
    }
    if fs::exists(Path::new(cgroup)).unwrap_or(false) {
        AgentCgroup::left_by(cgroup, agent).remove(PATIENCE);
    }
    ExitCode::SUCCESS
}

/// Waits for the agent's end. Is it over, rather than silent beyond what it said itself?
fn agent_ends(words: &mut (impl Read + AsFd)) -> bool {
    let mut patience = PollTimeout::NONE;
    loop {
        let mut waiting = [PollFd::new(words.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, patience) {
            Ok(0) => return false,
            Ok(_) => {
                let mut word = [0; WORD];
                if words.read_exact(&mut word).is_err() {
                    return true;
                }
                let length = Duration::from_nanos(u64::from_ne_bytes(word)) + MARGIN;
                patience = PollTimeout::try_from(length).unwrap_or(PollTimeout::NONE);
            }
            Err(_) => {}
        }
    }
}
