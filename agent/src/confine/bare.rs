//! A tree of files that has what a program is given, and nothing else of the machine's: `pivot_root(2)`.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::Obstacle;
use super::hidden::{is_folder, make_place};
use super::view::show_own_processes;
use crate::sys::{self, MountAttributes};

/// Folders that are links on most systems, and then stay links.
const LINKS: [&str; 5] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64"];
/// Where the new tree is made: a folder that is there everywhere.
const BASE: &str = "/dev";

/// Leaves the machine's tree for an empty one with places for what is `given`, and a `/proc` of the program's own; with settings
/// of the kernel, if all `processes` of its namespace are its own.
pub fn enter<'a>(given: impl Iterator<Item = &'a Path>, processes: bool) -> Result<(), Obstacle> {
    let places: Vec<_> = given.map(|path| (path, is_folder(path))).collect();
    let links: Vec<(&str, PathBuf)> =
        LINKS.iter().filter_map(|link| fs::read_link(link).ok().map(|target| (*link, target))).collect();
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), BASE, Some("tmpfs"), flags, Some("mode=755,size=1m"))
        .map_err(Obstacle::of("a new root"))?;
    // The old root is over the new one then, see pivot_root(2).
    chdir(BASE)
        .and_then(|()| pivot_root(".", "."))
        .and_then(|()| umount2(".", MntFlags::MNT_DETACH))
        .and_then(|()| chdir("/"))
        .map_err(Obstacle::of("pivot_root"))?;
    for (link, target) in links {
        symlink(target, link).map_err(Obstacle::io(link))?;
    }
    for (path, folder) in places {
        make_place(path, folder).map_err(Obstacle::io(path.to_string_lossy()))?;
    }
    for folder in ["/dev", "/proc"] {
        fs::create_dir_all(folder).map_err(Obstacle::io(folder))?;
    }
    if processes {
        show_own_processes()?;
    } else {
        show_own_process()?;
    }
    let root = File::open("/").map_err(Obstacle::io("/"))?;
    sys::set_mounts(root.as_fd(), MountAttributes::RDONLY).map_err(Obstacle::of("mount_setattr of /"))
}

/// Since Linux 5.8 `/proc` can be of processes alone, and hide those of others. An older kernel has none for it.
fn show_own_process() -> Result<(), Obstacle> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    match mount(Some("proc"), "/proc", Some("proc"), flags, Some("hidepid=ptraceable,subset=pid")) {
        Err(Errno::EINVAL) => Ok(()),
        mounted => mounted.map_err(Obstacle::of("a new /proc")),
    }
}
