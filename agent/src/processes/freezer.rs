//! Holding all processes of a run, and letting them go on.
//!
//! By the cgroup's freezer (`cgroup.freeze`, since Linux 5.2), which the processes don't notice; where there is none, by
//! SIGSTOP. Neither interrupts a system call that can't be interrupted: what waits for a disk is held once it has it.

use std::collections::BTreeSet;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup::RunCgroup;
use super::family::Family;

impl Family {
    /// Asks all to stand still; [`is_held`](Self::is_held) says whether they do.
    pub fn hold(&self) {
        if !self.cgroup().is_some_and(|cgroup| cgroup.set_frozen(true)) {
            self.signal_all(Signal::SIGSTOP);
        }
    }

    /// Lets all go on.
    pub fn let_go(&self) {
        if !self.cgroup().is_some_and(|cgroup| cgroup.set_frozen(false)) {
            self.signal_all(Signal::SIGCONT);
        }
    }

    /// Lets what was stopped by signals go on for a moment: one that has called vfork(2) can't stop before its child,
    /// which may have been stopped first, has executed something. The freezer knows that by itself.
    pub fn stir(&self) {
        if self.cgroup().and_then(RunCgroup::is_frozen).is_none() {
            self.signal_all(Signal::SIGCONT);
        }
    }

    /// Do all stand still that were asked to?
    pub fn is_held(&self) -> bool {
        match self.cgroup().and_then(RunCgroup::is_frozen) {
            Some(frozen) => frozen,
            // One that still ran may have forked after the list was made: if all in it stand, a second one is complete.
            None => {
                let seen: BTreeSet<i32> = self.everyone().collect();
                seen.iter().all(|pid| fs::read(format!("/proc/{pid}/stat")).map_or(true, stands))
                    && self.everyone().all(|pid| seen.contains(&pid))
            }
        }
    }

    fn signal_all(&self, signal: Signal) {
        for pid in self.everyone() {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    fn everyone(&self) -> impl Iterator<Item = i32> {
        let leader = (!self.leader_was_lost()).then_some(self.leader().as_raw());
        leader.into_iter().chain(self.members())
    }
}

impl RunCgroup {
    /// Whether the kernel took it.
    fn set_frozen(&self, frozen: bool) -> bool {
        fs::write(self.path().join("cgroup.freeze"), if frozen { "1" } else { "0" }).is_ok()
    }

    /// Whether all in it stand still; `None` where there is no freezer, or nothing was frozen.
    fn is_frozen(&self) -> Option<bool> {
        let asked = fs::read_to_string(self.path().join("cgroup.freeze")).ok()?;
        let events = fs::read_to_string(self.path().join("cgroup.events")).ok()?;
        (asked.trim() == "1").then(|| events.lines().any(|line| line == "frozen 1"))
    }
}

/// Of a `/proc/<pid>/stat`: whether the process is stopped, or dead.
fn stands(stat: Vec<u8>) -> bool {
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(") ").is_none_or(|(_, tail)| tail.starts_with(['T', 't', 'Z', 'X']))
}
