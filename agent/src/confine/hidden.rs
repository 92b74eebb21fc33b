//! Folders of which a confined program sees nothing but what it was given.
//!
//! In `/run` lie the sockets of the machine's services, which do as root asks of them, whatever capabilities it has.
//! And neither it, if it is a user that nobody else is, nor root without capabilities can pass through another user's
//! closed folder, in which its target may lie.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::unistd::{getegid, geteuid};

use super::Obstacle;
use super::handed::Heir;
use crate::sys::{self, MountAttributes};

const SERVICES: [&str; 2] = ["/run", "/var/run"];

/// Hides them, and makes places for what is `given`, by the paths where it is now. Gives the folders that are hidden.
pub fn hide<'a>(
    given: impl Iterator<Item = &'a Path>,
    heir: Option<&Heir>,
) -> Result<BTreeSet<PathBuf>, Obstacle> {
    // What is in `/dev` has its place already.
    let given: Vec<_> = given.filter(|path| !path.starts_with("/dev")).collect();
    let mut tops: BTreeSet<_> = SERVICES.iter().map(PathBuf::from).filter(|path| is_folder(path)).collect();
    let in_one = |path: &Path| tops.iter().any(|top| path.starts_with(top));
    let closed: Vec<_> =
        given.iter().filter(|path| !in_one(path)).filter_map(|path| outermost_closed(path, heir)).collect();
    tops.extend(closed);
    // Whether a place is for a file must be known before nothing is seen of it any more.
    let places: Vec<_> = given.iter().map(|path| (*path, is_folder(path))).collect();
    for top in &tops {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("tmpfs"), top, Some("tmpfs"), flags, Some("mode=755,size=1m"))
            .map_err(Obstacle::of(format!("hiding {}", top.display())))?;
    }
    let hidden = |path: &Path| tops.iter().any(|top| path.starts_with(top) && path != top);
    for (path, folder) in places.into_iter().filter(|(path, _)| hidden(path)) {
        make_place(path, folder).map_err(Obstacle::io(path.to_string_lossy()))?;
    }
    for top in &tops {
        let opened = File::open(top).map_err(Obstacle::io(top.to_string_lossy()))?;
        sys::set_mount(opened.as_fd(), MountAttributes::RDONLY)
            .map_err(Obstacle::of(format!("mount_setattr of {}", top.display())))?;
    }
    Ok(tops)
}

/// An empty file or folder, for something to be mounted there.
pub fn make_place(path: &Path, folder: bool) -> std::io::Result<()> {
    if folder {
        return fs::create_dir_all(path);
    }
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    File::create(path).map(drop)
}

/// Whether there is a folder, and no link to one.
pub fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// The first folder on the way to a path that the heir, or root without capabilities, could not pass through. What an ordinary
/// user has no way to, it could not be given either.
fn outermost_closed(path: &Path, heir: Option<&Heir>) -> Option<PathBuf> {
    if !geteuid().is_root() {
        return None;
    }
    let mut way: Vec<_> = path.ancestors().skip(1).collect();
    way.reverse();
    way.into_iter()
        .find(|folder| fs::metadata(folder).is_ok_and(|found| !may_pass(&found, heir)))
        .map(PathBuf::from)
}

fn may_pass(folder: &Metadata, heir: Option<&Heir>) -> bool {
    let own = || (geteuid().as_raw(), getegid().as_raw());
    let (user, group) = heir.map_or_else(own, |heir| (heir.number(), heir.number()));
    let bit = if folder.uid() == user {
        0o100
    } else if folder.gid() == group {
        0o010
    } else {
        0o001
    };
    folder.mode() & bit != 0
}
