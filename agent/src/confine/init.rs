//! Processes of a program that has a namespace of them for itself: `pid_namespaces(7)`.
//!
//! ```text
//! agent ── keeper ── init, the first of the namespace ── program
//! ```
//!
//! The *keeper* is the one that the agent started; it ends as the program does. *Init* reaps what the program leaves
//! behind, and by its end the kernel ends all that is left. Neither acts on a signal: the agent's are for the program.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, readlinkat};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, setpgid};

use super::Obstacle;
use crate::sys;

/// `/proc` as the agent sees it.
#[derive(Debug)]
pub struct AgentsProc(OwnedFd);

impl AgentsProc {
    pub fn open() -> Result<Self, Obstacle> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        open("/proc", flags, Mode::empty()).map(Self).map_err(Obstacle::of("/proc"))
    }

    pub fn own_number(&self) -> Option<i32> {
        readlinkat(&self.0, "self").ok()?.into_string().ok()?.parse().ok()
    }
}

/// Becomes init, of the namespace that this process has made for its children; another process stays behind as keeper.
/// Init gets the pipe by which it will say how the program has ended.
pub fn become_init() -> Result<PipeWriter, Obstacle> {
    let (reader, writer) = pipe().map_err(Obstacle::io("a pipe"))?;
    match sys::fork().map_err(Obstacle::of("fork"))? {
        Some(init) => keep(init, reader),
        None => {
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            Ok(writer)
        }
    }
}

/// Goes on in the process that becomes the program, which leads a group of its own; another one stays behind as init.
pub fn leave_init(status: PipeWriter) -> Result<(), Obstacle> {
    match sys::fork().map_err(Obstacle::of("fork"))? {
        Some(program) => reap_until_ended(program, status),
        None => setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(Obstacle::of("setpgid")),
    }
}

fn keep(init: Pid, mut status: PipeReader) -> ! {
    let _ = SigSet::all().thread_set_mask();
    sys::close_all_but(status.as_raw_fd());
    let mut said = [0; size_of::<i32>()];
    let said = status.read_exact(&mut said).map(|()| ExitStatus::from_raw(i32::from_ne_bytes(said)));
    // Waited for in any case: what the program has used is counted with init's.
    loop {
        match sys::wait_for_any() {
            Ok((pid, of_init)) if pid == init => sys::end_as(said.unwrap_or(of_init)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => sys::end_as(said.unwrap_or_default()),
        }
    }
}

fn reap_until_ended(program: Pid, status: PipeWriter) -> ! {
    let _ = SigSet::all().thread_set_mask();
    sys::close_all_but(status.as_raw_fd());
    let mut status = File::from(OwnedFd::from(status));
    loop {
        match sys::wait_for_any() {
            Ok((pid, ended)) if pid == program => {
                // Where nobody reads it, the keeper is gone, and init with it.
                let _ = status.write_all(&ended.into_raw().to_ne_bytes());
                sys::end_as(ExitStatus::default());
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => sys::end_as(ExitStatus::from_raw(127 << 8)),
        }
    }
}
