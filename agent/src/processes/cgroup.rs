//! Control groups, version 2: a run's processes can't leave its cgroup by `setsid`, and one write kills them all.
//!
//! Sources: `cgroups(7)`, `Documentation/admin-guide/cgroup-v2.rst`. `cgroup.kill` is in kernels since 5.14; on
//! older ones, what `cgroup.procs` lists is killed one by one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Where this process's own cgroup is mounted, from `/proc/self/mountinfo` and `/proc/self/cgroup`; `None` where
/// version 2 is not there. Version 1 beside it (hybrid) doesn't matter.
pub fn locate(mountinfo: &str, own: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        if filesystem.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, mount_point) = (fields.next()?, fields.next()?);
        // In a container, the mount may show a part of the hierarchy only.
        let below = Path::new(own).strip_prefix(root).ok()?;
        // A ".." would be a cgroup outside the namespace, which this mount doesn't show.
        let inside = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        inside.then(|| Path::new(mount_point).join(below))
    })
}

/// The agent's cgroup, which holds those of its runs and no process itself.
#[derive(Debug)]
pub struct AgentCgroup {
    path: PathBuf,
    agent: u32,
}

impl AgentCgroup {
    /// Makes it under the cgroup in which the agent is; `None` where that can't be, which is no error: runs then
    /// go without.
    pub fn create(name: &str) -> Option<Self> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = locate(&mountinfo, &own)?.join(name);
        make(&path).ok()?;
        Some(Self { path, agent: std::process::id() })
    }

    pub fn left_by(path: impl Into<PathBuf>, agent: u32) -> Self {
        Self { path: path.into(), agent }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes one for a run; its name ends with the run's own, where that has one.
    pub fn create_run(&self, serial: u64, name: Option<&str>) -> Option<RunCgroup> {
        let own = name.map(|name| format!("-{name}")).unwrap_or_default();
        // The agent's number keeps two agents apart that were given one name.
        let path = self.path.join(format!("run-{}-{serial}{own}", self.agent));
        make(&path).ok()?;
        Some(RunCgroup { path })
    }

    /// Removes it, unless another agent still uses it; whether none of this agent's runs is left. What was killed is
    /// waited for, so long at most: on a busy machine, or with much memory to give back, dying takes seconds.
    pub fn remove(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let own = self.own_runs();
            for run in &own {
                run.kill();
                run.remove();
            }
            if own.is_empty() || Instant::now() > until {
                let _ = fs::remove_dir(&self.path);
                return own.is_empty();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn own_runs(&self) -> Vec<RunCgroup> {
        let own = format!("run-{}-", self.agent);
        children(&self.path)
            .into_iter()
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own)))
            .map(|path| RunCgroup { path })
            .collect()
    }
}

#[derive(Debug)]
pub struct RunCgroup {
    path: PathBuf,
}

impl RunCgroup {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The living processes in it and in those that they made below it.
    pub fn processes(&self) -> Vec<i32> {
        processes_below(&self.path)
    }

    pub fn is_empty(&self) -> bool {
        match fs::read_to_string(self.path.join("cgroup.events")) {
            Ok(events) => !events.lines().any(|line| line == "populated 1"),
            Err(_) => true,
        }
    }

    /// Kills all that is in it.
    pub fn kill(&self) {
        if fs::write(self.path.join("cgroup.kill"), "1").is_err() {
            for pid in self.processes() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }

    /// Removes it and what the run made below it. What can't be removed now is tried again when the agent ends.
    pub fn remove(&self) {
        remove_below(&self.path);
    }
}

fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn children(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn processes_below(path: &Path) -> Vec<i32> {
    let listed = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    // 0 is a process outside this PID namespace; kill(0) would be the agent's own group.
    let mut processes: Vec<i32> =
        listed.lines().filter_map(|pid| pid.parse().ok()).filter(|&pid| pid > 0).collect();
    for child in children(path) {
        processes.extend(processes_below(&child));
    }
    processes
}

fn remove_below(path: &Path) {
    for child in children(path) {
        remove_below(&child);
    }
    let _ = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn version_2_is_found_beside_version_1() {
        let own = "9:name=systemd:/x\n4:memory:/y\n0::/user.slice/a\n";
        assert_eq!(locate(HYBRID, own), Some("/sys/fs/cgroup/unified/user.slice/a".into()));
    }

    #[test]
    fn a_mount_of_a_part_of_the_hierarchy_is_understood() {
        let mountinfo = "41 31 0:38 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(locate(mountinfo, "0::/box/a\n"), Some("/sys/fs/cgroup/a".into()));
        assert_eq!(locate(mountinfo, "0::/elsewhere\n"), None);
    }

    #[test]
    fn a_cgroup_outside_the_namespace_can_not_be_used() {
        assert_eq!(locate(HYBRID, "0::/../other\n"), None);
    }

    #[test]
    fn version_1_alone_is_not_enough() {
        let mountinfo = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        assert_eq!(locate(mountinfo, "4:memory:/\n"), None);
    }
}
