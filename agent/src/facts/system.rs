//! The node itself: kernel, processors, memory. Sources: `uname(2)`, `os-release(5)`, `proc(5)`.

use std::collections::BTreeMap;
use std::fs;

use nix::sys::utsname::uname;
use nix::unistd::{SysconfVar, getuid, sysconf};

use super::virtualization;
use crate::clock;
use crate::protocol::{Clocks, Cpus, Facts, Kernel, Memory};

/// All but the tools. Takes about a millisecond.
pub fn gather() -> Facts {
    let cpuinfo = read("/proc/cpuinfo");
    let meminfo = read("/proc/meminfo");
    let os_release = Some(read("/etc/os-release")).filter(|text| !text.is_empty());
    let clock_source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    Facts {
        kernel: kernel(),
        os: os_name(&os_release.unwrap_or_else(|| read("/usr/lib/os-release"))),
        hostname: hostname(),
        cpus: Cpus {
            online: sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten().map_or(0, |count| count as u64),
            model: field(&cpuinfo, "model name").or_else(|| device_model().filter(|model| !model.is_empty())),
        },
        memory: Memory {
            total_bytes: kibibytes(&meminfo, "MemTotal"),
            available_bytes: kibibytes(&meminfo, "MemAvailable"),
        },
        modules: first_words(&read("/proc/modules")),
        filesystems: read("/proc/filesystems").lines().filter_map(last_word).collect(),
        clocks: Clocks {
            source: Some(clock_source.trim().to_owned()).filter(|source| !source.is_empty()),
            resolution_ns: clock::resolution_ns(),
        },
        cgroup: cgroup_version(&read("/proc/self/mountinfo")),
        uid: getuid().as_raw(),
        virtualization: virtualization::detect(&cpuinfo),
        tools: BTreeMap::new(),
    }
}

pub fn hostname() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn read(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn kernel() -> Kernel {
    let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
    uname().map_or_else(
        |_| Kernel { release: String::new(), version: String::new(), machine: String::new() },
        |name| Kernel {
            release: text(name.release()),
            version: text(name.version()),
            machine: text(name.machine()),
        },
    )
}

fn device_model() -> Option<String> {
    // A device tree's strings end with a NUL.
    Some(read("/proc/device-tree/model").trim_end_matches('\0').trim().to_owned())
}

fn os_name(os_release: &str) -> Option<String> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim().trim_matches(['"', '\'']).to_owned())
}

/// The first `name : value` line of that name.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn kibibytes(meminfo: &str, name: &str) -> u64 {
    field(meminfo, name)
        .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kibibytes| kibibytes * 1024)
}

fn first_words(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.split_whitespace().next()).map(Into::into).collect()
}

fn last_word(line: &str) -> Option<String> {
    line.split_whitespace().last().map(Into::into)
}

fn cgroup_version(mountinfo: &str) -> &'static str {
    let mounted = |kind: &str| {
        mountinfo
            .lines()
            .filter_map(|line| line.split_once(" - "))
            .any(|(_, filesystem)| filesystem.split(' ').next() == Some(kind))
    };
    match (mounted("cgroup"), mounted("cgroup2")) {
        (true, true) => "hybrid",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_name_loses_its_quotes() {
        let text = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n";
        assert_eq!(os_name(text).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(os_name("ID=x\n"), None);
    }

    #[test]
    fn memory_is_told_in_bytes() {
        assert_eq!(kibibytes("MemTotal:        2048 kB\nMemFree: 1 kB\n", "MemTotal"), 2_097_152);
        assert_eq!(kibibytes("", "MemTotal"), 0);
    }

    #[test]
    fn a_file_system_that_needs_no_device_is_named_like_any_other() {
        let names: Vec<_> = "nodev\tsysfs\n\text4\n".lines().filter_map(last_word).collect();
        assert_eq!(names, ["sysfs", "ext4"]);
    }

    #[test]
    fn both_versions_of_cgroups_together_are_hybrid() {
        let (v1, v2) = ("1 1 0:1 / /a rw - cgroup cgroup rw\n", "2 1 0:2 / /b rw - cgroup2 cgroup2 rw\n");
        assert_eq!(cgroup_version(v1), "v1");
        assert_eq!(cgroup_version(v2), "v2");
        assert_eq!(cgroup_version(&[v1, v2].concat()), "hybrid");
        assert_eq!(cgroup_version(""), "none");
    }
}
