//! A `/dev` with what any program may expect, the devices that are named, and no other.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MsFlags, mount};

use super::Obstacle;
use super::tree::Tree;
use crate::sys::{self, MountAttributes};

const DEV: &str = "/dev";
const HARMLESS: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// The nodes of these devices, and of those that do no harm.
pub fn gather(named: &[String]) -> Result<Vec<Tree>, Obstacle> {
    let paths = HARMLESS.iter().copied().chain(named.iter().map(String::as_str));
    paths.filter_map(|path| Tree::of(path).transpose()).collect()
}

/// Mounts a new `/dev` over the machine's. It has `shm` for shared memory, and a place for each of `others` that lies
/// in it.
pub fn replace<'a>(nodes: &[Tree], others: impl Iterator<Item = &'a Path>) -> Result<(), Obstacle> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), DEV, Some("tmpfs"), flags, Some("mode=755,size=1m"))
        .map_err(Obstacle::of("a new /dev"))?;
    fs::create_dir("/dev/shm").map_err(Obstacle::io("/dev/shm"))?;
    let flags = flags | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), flags, Some("mode=1777"))
        .map_err(Obstacle::of("/dev/shm"))?;
    for (link, target) in LINKS {
        symlink(target, link).map_err(Obstacle::io(link))?;
    }
    for path in others.filter(|path| path.starts_with(DEV)) {
        fs::create_dir_all(path).map_err(Obstacle::io(path.to_string_lossy()))?;
    }
    for node in nodes {
        make_place(node.path())?;
        node.attach()?;
    }
    let dev = File::open(DEV).map_err(Obstacle::io(DEV))?;
    sys::set_mount(dev.as_fd(), MountAttributes::RDONLY).map_err(Obstacle::of("mount_setattr of /dev"))
}

/// An empty file for a node to be mounted on, where its path is in `/dev`; others are still where they were.
fn make_place(path: &Path) -> Result<(), Obstacle> {
    if !path.starts_with(DEV) {
        return Ok(());
    }
    let io = || Obstacle::io(path.to_string_lossy());
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(io())?;
    File::create(path).map(drop).map_err(io())
}
