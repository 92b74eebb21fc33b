//! The rest of init's life: the agent as its child, orphans to reap, and the end of the machine.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;

use super::console::say;
use super::error::InitError;
use crate::processes::oom;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Starts the agent proper, with the port as its standard streams: the port can't be opened a second time.
pub fn start_agent(port: File) -> Result<Pid, InitError> {
    let spawn = || -> io::Result<Pid> {
        // The file of this process, deleted though it is, and in another file system than the root by now.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("storlab-agent").args(["serve", "--cgroup", "storlab"]);
        command.env_clear().env("PATH", PATH).env("HOME", "/root");
        command.stdin(Stdio::from(port.try_clone()?)).stdout(Stdio::from(port));
        Ok(Pid::from_raw(command.spawn()?.id() as i32))
    };
    let agent = spawn().map_err(InitError::Agent)?;
    if let Err(error) = oom::spare(agent) {
        say(format_args!("warning: the agent may be killed where memory runs out: {error}"));
    }
    Ok(agent)
}

/// Reaps until the agent ends, and tells how it did.
pub fn reap_until_end(agent: Pid) -> String {
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, status)) if pid == agent => {
                return format!("the agent exited with status {status}");
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == agent => {
                return format!("the agent was killed by {signal}");
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return format!("the agent can't be waited for: {errno}"),
        }
    }
}

/// Switches the machine off. Returns only where the kernel refuses; process 1 then ends, which stops it as well.
pub fn power_off() -> Result<Infallible, Errno> {
    reboot(RebootMode::RB_POWER_OFF).inspect_err(|errno| say(format_args!("can't power off: {errno}")))
}
