//! What of the machine a confined program does not share.
//!
//! Sources: `namespaces(7)`, `user_namespaces(7)`, `network_namespaces(7)`.

use std::fs;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{getegid, geteuid};

use super::Obstacle;
use crate::sys;

/// Makes the namespaces; `false` where an ordinary user may not have any. With `mounts_only` that is one of mounts alone.
pub fn separate(mounts_only: bool, network: bool) -> Result<bool, Obstacle> {
    let mut flags = CloneFlags::CLONE_NEWNS;
    if !mounts_only {
        flags |= CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
        flags.set(CloneFlags::CLONE_NEWNET, !network);
    }
    match unshare(flags) {
        Ok(()) => {}
        Err(Errno::EPERM) => {
            let (user, group) = (geteuid(), getegid());
            if unshare(CloneFlags::CLONE_NEWUSER | flags).is_err() {
                return Ok(false);
            }
            let map = |file: &str, line: String| {
                fs::write(format!("/proc/self/{file}"), line).map_err(Obstacle::io(file))
            };
            map("setgroups", "deny".into())?;
            map("uid_map", format!("{user} {user} 1"))?;
            map("gid_map", format!("{group} {group} 1"))?;
            let _ = prctl::set_pdeathsig(Signal::SIGKILL); // a process with other capabilities loses it
        }
        Err(errno) => return Err(Obstacle { what: "unshare".into(), errno }),
    }
    if flags.contains(CloneFlags::CLONE_NEWNET) {
        sys::start_loopback().map_err(Obstacle::of("the interface lo"))?;
    }
    Ok(true)
}
