//! The processes of one run: its process group, its cgroup, and what descends from it.
//!
//! Where the run has a cgroup, that is its family. Where none can be made, the family is looked for in `/proc`:
//! the group, the descendants of the first process, and those whose environment holds the run's [`MARKER`], which
//! is how a daemon is recognised that has left its group and parents (`setsid`, double fork) and was given to the
//! agent, its subreaper.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};

use super::cgroup::RunCgroup;
use super::table::{descendants, snapshot};

/// The environment variable that every process of a run inherits.
pub const MARKER: &str = "STORLAB_AGENT_RUN";

#[derive(Debug)]
pub struct Family {
    leader: Pid,
    /// The process that is the program, where that is a descendant of the first.
    program: Option<Pid>,
    /// A number is free for others once its process is reaped and its group empty: it must not be used then.
    leader_reaped: bool,
    marker: String,
    cgroup: Option<RunCgroup>,
    /// Number and start of those that were found in `/proc`. While one dies it loses its environment, and then its
    /// open files: by the environment alone it would seem gone while it holds a file system busy.
    found: RefCell<BTreeSet<(i32, u64)>>,
}

impl Family {
    /// The value of [`MARKER`] for a run.
    pub fn marker(serial: u64) -> String {
        format!("{}-{serial}", std::process::id())
    }

    /// A process that leads its own group, not yet in the cgroup that was made for it.
    pub fn new(leader: Pid, serial: u64, cgroup: Option<RunCgroup>) -> Self {
        Self {
            leader,
            program: None,
            leader_reaped: false,
            marker: Self::marker(serial),
            cgroup,
            found: RefCell::default(),
        }
    }

    /// The first process.
    pub fn leader(&self) -> Pid {
        self.leader
    }

    /// The process of this number is the program; the first one ends as it does.
    pub fn becomes(&mut self, program: Option<i32>) {
        self.program = program.map(Pid::from_raw);
    }

    /// The process that is the program, or is about to become it.
    pub fn program(&self) -> Pid {
        self.program.unwrap_or(self.leader)
    }

    pub fn cgroup(&self) -> Option<&RunCgroup> {
        self.cgroup.as_ref()
    }

    /// The first process could not join the cgroup.
    pub fn drop_cgroup(&mut self) {
        if let Some(cgroup) = self.cgroup.take() {
            cgroup.remove();
        }
    }

    /// Whether the first process has been reaped.
    pub fn leader_was_lost(&self) -> bool {
        self.leader_reaped
    }

    /// The first process has been reaped.
    pub fn leader_was_reaped(&mut self) {
        self.leader_reaped = true;
    }

    /// Asks all to end. A stopped process gets to know it, too.
    pub fn terminate(&self) {
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            self.signal_group(signal);
            for pid in self.members() {
                let pid = Pid::from_raw(pid);
                if self.leader_reaped || getpgid(Some(pid)) != Ok(self.leader) {
                    let _ = kill(pid, signal);
                }
            }
        }
    }

    /// Sends this to the program's first process alone. A stopped one gets to know it, too.
    pub fn signal_program(&self, signal: Signal) {
        // While the first process lives, so does the program, or has only just ended.
        let there = self.program.is_none_or(|program| self.members().contains(&program.as_raw()));
        if there && !self.leader_reaped {
            let _ = kill(self.program(), signal);
            let _ = kill(self.program(), Signal::SIGCONT);
        }
    }

    /// Kills all.
    pub fn kill(&self) {
        self.signal_group(Signal::SIGKILL);
        match &self.cgroup {
            Some(cgroup) => cgroup.kill(),
            None => {
                for pid in self.members() {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
            }
        }
    }

    /// The living members other than the first process.
    pub fn members(&self) -> BTreeSet<i32> {
        let mut members = match &self.cgroup {
            Some(cgroup) => cgroup.processes().into_iter().collect(),
            None => self.search(),
        };
        members.remove(&self.leader.as_raw());
        members
    }

    /// Is none left but, perhaps, the first process?
    pub fn is_gone(&self) -> bool {
        match &self.cgroup {
            Some(cgroup) => cgroup.is_empty(),
            None => self.members().is_empty(),
        }
    }

    pub fn remove_cgroup(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
    }

    fn signal_group(&self, signal: Signal) {
        if !self.leader_reaped {
            let _ = killpg(self.leader, signal);
        }
    }

    fn search(&self) -> BTreeSet<i32> {
        let table = snapshot();
        let leader = self.leader.as_raw();
        let mut found: BTreeSet<i32> = BTreeSet::new();
        let mut known = self.found.borrow_mut();
        for process in descendants(&table, std::process::id() as i32) {
            let this = (process.pid, process.started);
            if !process.zombie
                && (process.group == leader
                    || found.contains(&process.parent)
                    || known.contains(&this)
                    || self.is_marked(process.pid))
            {
                found.insert(process.pid);
                known.insert(this);
            }
        }
        if !self.leader_reaped {
            found.extend(
                descendants(&table, leader).iter().filter(|child| !child.zombie).map(|child| child.pid),
            );
        }
        found
    }

    fn is_marked(&self, pid: i32) -> bool {
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        environment.split(|&byte| byte == 0).any(|variable| {
            variable
                .strip_prefix(MARKER.as_bytes())
                .and_then(|rest| rest.strip_prefix(b"="))
                .is_some_and(|value| value == self.marker.as_bytes())
        })
    }
}
