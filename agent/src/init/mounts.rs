//! The kernel's own file systems and those in memory: what every Linux program expects to find.

use std::fs;
use std::os::unix::fs::symlink;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use super::error::InitError;

/// A file system without a device.
struct Virtual {
    kind: &'static str,
    target: &'static str,
    options: &'static str,
}

const fn fs(kind: &'static str, target: &'static str, options: &'static str) -> Virtual {
    Virtual { kind, target, options }
}

/// What init itself needs. They are moved along when the root file system is switched.
const EARLY: [Virtual; 3] =
    [fs("devtmpfs", "/dev", "mode=755"), fs("proc", "/proc", ""), fs("sysfs", "/sys", "")];
pub const MOVED: [&str; 3] = ["/dev", "/proc", "/sys"];

const NEEDED: [Virtual; 5] = [
    fs("tmpfs", "/run", "mode=755"),
    fs("tmpfs", "/tmp", "mode=1777"),
    fs("devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666"),
    fs("tmpfs", "/dev/shm", "mode=1777"),
    fs("cgroup2", "/sys/fs/cgroup", ""),
];

/// Not every kernel has them; what needs one says so itself.
const WELCOME: [Virtual; 4] = [
    fs("debugfs", "/sys/kernel/debug", ""),
    fs("tracefs", "/sys/kernel/tracing", ""),
    fs("bpf", "/sys/fs/bpf", "mode=700"),
    fs("configfs", "/sys/kernel/config", ""),
];

const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts devices, processes and the kernel's objects in the initramfs.
pub fn early() -> Result<(), InitError> {
    EARLY.iter().try_for_each(attach)
}

/// Mounts the rest, in the final root file system.
pub fn late() -> Result<(), InitError> {
    NEEDED.iter().try_for_each(attach)?;
    for welcome in &WELCOME {
        let _ = attach(welcome);
    }
    for (target, link) in LINKS {
        let _ = symlink(target, link); // exists where something has made it before
    }
    Ok(())
}

fn attach(what: &Virtual) -> Result<(), InitError> {
    directory(what.target)?;
    let mut flags = MsFlags::MS_NOSUID;
    flags.set(MsFlags::MS_NODEV, what.kind != "devtmpfs" && what.kind != "devpts");
    match mount(Some(what.kind), what.target, Some(what.kind), flags, Some(what.options)) {
        Ok(()) | Err(Errno::EBUSY) => Ok(()), // EBUSY: the kernel has mounted it itself
        Err(errno) => Err(InitError::Mount { what: format!("{} on {}", what.kind, what.target), errno }),
    }
}

/// Makes sure that there is one to mount on.
pub fn directory(path: &str) -> Result<(), InitError> {
    fs::create_dir_all(path).map_err(InitError::file("make the directory", path))
}
