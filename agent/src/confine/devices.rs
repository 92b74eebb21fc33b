//! A `/dev` with what any program may expect, the devices that are named, and no other.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, mknod};
use nix::unistd::{Gid, Uid, chown};

use super::Obstacle;
use super::handed::Heir;
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

/// Nodes as they are now, and devices that are to have one of the heir's: where, and which.
pub struct Nodes {
    kept: Vec<Tree>,
    handed: Vec<(PathBuf, u64)>,
}

impl Nodes {
    /// The nodes of these devices, and of those that do no harm.
    pub fn of(named: &[String], heir: Option<&Heir>) -> Result<Self, Obstacle> {
        let mut nodes = Self { kept: vec![], handed: vec![] };
        let mut kept = HARMLESS.to_vec();
        for path in named {
            match fs::metadata(path) {
                Ok(found) if heir.is_some() && found.file_type().is_block_device() => {
                    nodes.handed.push((path.into(), found.rdev()));
                }
                _ => kept.push(path),
            }
        }
        nodes.kept =
            kept.into_iter().filter_map(|path| Tree::of(path).transpose()).collect::<Result<_, _>>()?;
        Ok(nodes)
    }
}

/// Mounts a new `/dev` over the machine's. It has `shm` for shared memory, and a place for each of `others` that lies
/// in it.
pub fn replace<'a>(
    nodes: &Nodes,
    heir: Option<&Heir>,
    others: impl Iterator<Item = &'a Path>,
) -> Result<(), Obstacle> {
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
    for node in &nodes.kept {
        make_place(node.path())?;
        node.attach()?;
    }
    for (path, number) in &nodes.handed {
        let Some(heir) = heir else { break };
        make_folder(path)?;
        mknod(path, SFlag::S_IFBLK, Mode::S_IRUSR | Mode::S_IWUSR, *number)
            .map_err(Obstacle::of(path.to_string_lossy()))?;
        let (user, group) = (Uid::from_raw(heir.number()), Gid::from_raw(heir.number()));
        chown(path, Some(user), Some(group)).map_err(Obstacle::of(path.to_string_lossy()))?;
    }
    let dev = File::open(DEV).map_err(Obstacle::io(DEV))?;
    sys::set_mount(dev.as_fd(), MountAttributes::RDONLY).map_err(Obstacle::of("mount_setattr of /dev"))
}

/// An empty file for a node to be mounted on, where its path is in `/dev`; others are still where they were.
fn make_place(path: &Path) -> Result<(), Obstacle> {
    if !path.starts_with(DEV) {
        return Ok(());
    }
    make_folder(path)?;
    File::create(path).map(drop).map_err(Obstacle::io(path.to_string_lossy()))
}

fn make_folder(path: &Path) -> Result<(), Obstacle> {
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(Obstacle::io(path.to_string_lossy()))
}
