//! The table of processes, from `/proc`. Source: `proc_pid_stat(5)`.

use super::cgroup::RunCgroup;
use super::family::Family;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub zombie: bool,
    /// When it began, in ticks since the boot: with its number, what no other process has.
    pub started: u64,
}

/// Understands a `/proc/<pid>/stat`. The name in it may hold anything, even `) R 1 1`, so it is cut off at the
/// last parenthesis.
pub fn parse_stat(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(')')?;
    let pid = head.split_once(" (")?.0.parse().ok()?;
    let mut fields = tail.split_ascii_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let started = fields.nth(16)?.parse().ok()?; // field 22 of the line, of which `group` is the fifth
    Some(Process { pid, parent, group, zombie, started })
}

/// All processes that can be seen now.
pub fn snapshot() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        // The name of a program needn't be UTF-8.
        .filter_map(|pid| fs::read(format!("/proc/{pid}/stat")).ok())
        .filter_map(|stat| parse_stat(&String::from_utf8_lossy(&stat)))
        .collect()
}

/// Those that descend from `ancestor`, however far, without itself.
pub fn descendants(table: &[Process], ancestor: i32) -> Vec<Process> {
    let mut found: Vec<Process> =
        table.iter().filter(|process| process.parent == ancestor).copied().collect();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].pid;
        found.extend(table.iter().filter(|process| process.parent == parent && parent != ancestor));
        next += 1;
    }
    found
}

/// Kills and reaps all that descend from this process, again and again until none is left: what escaped from its
/// run's group and cgroup has been given to the agent, the child subreaper. Gives up on those that the kernel
/// doesn't let die within five seconds.
pub fn kill_descendants() {
    let this = std::process::id() as i32;
    for _ in 0..500 {
        while let Ok(status) = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
            if status == WaitStatus::StillAlive {
                break;
            }
        }
        let left = descendants(&snapshot(), this);
        if left.is_empty() {
            return;
        }
        for process in left {
            // It may have died meanwhile.
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

// Holding all processes of a run, and letting them go on.
//
// By the cgroup's freezer (`cgroup.freeze`, since Linux 5.2), which the processes don't notice; where there is none, by
// SIGSTOP. Neither interrupts a system call that can't be interrupted: what waits for a disk is held once it has it.

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

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, group: pid, zombie: false, started: 0 }
    }

    #[test]
    fn a_programs_name_can_not_forge_its_parent() {
        let stat = "42 (evil) R 1 1 (x) S 7 40 40 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 1 0 8712 2580480 233";
        let forged = Process { pid: 42, parent: 7, group: 40, zombie: false, started: 8712 };
        assert_eq!(parse_stat(stat), Some(forged));
    }

    #[test]
    fn a_stat_that_is_cut_short_is_no_process() {
        for stat in
            ["", "42", "42 (sh", "42 (sh)", "42 (sh) S", "42 (sh) S 7", "x (sh) S 7 7", "42 (sh) S 7 7 7 0"]
        {
            assert_eq!(parse_stat(stat), None, "{stat:?}");
        }
    }

    #[test]
    fn descendants_are_found_through_all_generations() {
        let table = [process(30, 20), process(20, 10), process(10, 1), process(11, 1), process(31, 20)];
        let mut found: Vec<i32> = descendants(&table, 10).iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [20, 30, 31]);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let this = std::process::id() as i32;
        assert!(snapshot().iter().any(|process| process.pid == this && process.started > 0));
    }
}
