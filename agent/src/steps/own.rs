//! Whether what is at a path is Storlab's own.
//!
//! Its name says so to whoever asks; others may have made a directory of that name, or a link. So each component is
//! opened by itself without following links, and Storlab's outermost folder must belong to this user. Servers of
//! network file systems may know this user by another name, so owners say nothing there.

use crate::protocol::Failure;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statfs::{FUSE_SUPER_MAGIC, FsType, NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, fstatfs};
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// A directory, to be reached and not to be read.
const PLACE: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// Of `cifs`, of `smb3` and of 9p: `linux/magic.h`.
const OTHERS: [FsType; 3] = [FsType(0xFF53_4D42), FsType(0xFE53_4D42), FsType(0x0102_1997)];

/// Something of Storlab's: its name in the directory that holds it.
#[derive(Debug)]
pub struct Owned<'a> {
    pub parent: OwnedFd,
    pub name: &'a OsStr,
    pub stat: FileStat,
}

/// What is at `path`, if it is Storlab's; `None` where nothing is there. `top` is the outermost of Storlab's own folders
/// that it lies in, or itself.
pub fn find<'a>(path: &'a str, top: &str) -> Result<Option<Owned<'a>>, Failure> {
    let names = components(path)?;
    let above = components(top)?.len();
    let is_below = path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if !is_below {
        return Err(Failure::errno(format!("{path:?} is not in {top:?}"), Errno::EINVAL));
    }
    match fs::symlink_metadata(path) {
        Ok(_) => {}
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => return Ok(None),
        Err(error) => return Err(Failure::io(format!("can't look at {path:?}"), &error)),
    }
    match walk(&names, above) {
        // It was there a moment ago, and somebody else removes it.
        Err(Refused::System(Errno::ENOENT)) => Ok(None),
        Err(Refused::System(errno)) => Err(Failure::errno(format!("can't look at {path:?}"), errno)),
        Err(Refused::Link) => Err(foreign("a symbolic link is in its way", Errno::ELOOP)),
        Err(Refused::Owner) => Err(foreign("it belongs to another user", Errno::EPERM)),
        Ok((parent, stat)) => Ok(names.last().map(|name| Owned { parent, name: OsStr::new(*name), stat })),
    }
}

/// Messages that a controller recognises by their error, and shows as they are.
fn foreign(message: &str, errno: Errno) -> Failure {
    Failure { message: message.into(), errno: Some(format!("{errno:?}")) }
}

enum Refused {
    Link,
    Owner,
    System(Errno),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// The directory that holds the last of these names, and what that is.
fn walk(names: &[&str], above: usize) -> Result<(OwnedFd, FileStat), Refused> {
    let mut at = open("/", PLACE, Mode::empty())?;
    for (number, name) in names.iter().enumerate() {
        let stat = fstatat(&at, *name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        let is_last = number + 1 == names.len();
        let is_link = is(&stat, SFlag::S_IFLNK);
        if is_link && (!is_last || number + 1 == above) {
            return Err(Refused::Link);
        }
        if is_last && number + 1 != above {
            return Ok((at, stat));
        }
        let below = match openat(&at, *name, PLACE, Mode::empty()) {
            // Whatever it was a moment ago.
            Err(Errno::ELOOP | Errno::ENOTDIR) if !is_last => return Err(Refused::Link),
            Err(Errno::ENOTDIR) => None,
            opened => Some(opened?),
        };
        if number + 1 == above && !is_mine(below.as_ref(), &stat)? {
            return Err(Refused::Owner);
        }
        match below {
            Some(below) if !is_last => at = below,
            _ => return Ok((at, stat)),
        }
    }
    Err(Refused::System(Errno::EINVAL))
}

/// Whether Storlab's outermost folder belongs to this user, as far as that can be known.
fn is_mine(top: Option<&OwnedFd>, stat: &FileStat) -> Result<bool, Errno> {
    let Some(top) = top else { return Ok(stat.st_uid == geteuid().as_raw()) };
    let kind = fstatfs(top)?.filesystem_type();
    let is_served =
        [NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, FUSE_SUPER_MAGIC].contains(&kind) || OTHERS.contains(&kind);
    Ok(is_served || fstat(top)?.st_uid == geteuid().as_raw())
}

pub fn is(stat: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind
}

/// The names in an absolute path. None may be a way back, or nothing.
fn components(path: &str) -> Result<Vec<&str>, Failure> {
    let refused = || Failure::errno(format!("{path:?} is no plain absolute path"), Errno::EINVAL);
    let names: Vec<&str> = path.strip_prefix('/').ok_or_else(refused)?.split('/').collect();
    if names.iter().any(|name| matches!(*name, "" | "." | "..")) { Err(refused()) } else { Ok(names) }
}

// Directories whose files need not be read again, for nobody has written to them: attributes of sysfs, by the hundred.

/// Directories that are watched, at most: each takes a file descriptor.
const MOST: usize = 64;
/// Batches of events that are taken at a time, at most: who writes without an end has changed them anyway.
const BATCHES: usize = 16;

static WATCHED: Mutex<BTreeMap<String, Watch>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Watch {
    inotify: Inotify,
    directory: Option<WatchDescriptor>,
}

/// Whether somebody may have written to a file of this directory, or replaced it, since this was last asked of it.
///
/// The first time somebody may, and also where the kernel can't say. What it changes by itself, it does not tell.
pub fn may_have_changed(path: &str) -> bool {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = look(&mut watched, path);
    if found.is_err() {
        watched.remove(path);
    }
    found.unwrap_or(true)
}

fn look(watched: &mut BTreeMap<String, Watch>, path: &str) -> nix::Result<bool> {
    if !watched.contains_key(path) {
        if watched.len() == MOST {
            return Err(Errno::EMFILE);
        }
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        watched.insert(path.into(), Watch { inotify, directory: None });
    }
    let Some(watch) = watched.get_mut(path) else { return Ok(true) };
    let kinds = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE;
    // A directory keeps its number; one that was removed, as by unloading a module, and made again, gets another.
    let directory = watch.inotify.add_watch(path, kinds | AddWatchFlags::IN_ONLYDIR)?;
    let before = watch.directory.replace(directory);
    let mut changed = before != Some(directory);
    if let Some(gone) = before.filter(|_| changed) {
        let _ = watch.inotify.rm_watch(gone);
    }
    for _ in 0..BATCHES {
        match watch.inotify.read_events() {
            Ok(events) => changed |= !events.is_empty(),
            Err(Errno::EAGAIN) => return Ok(changed),
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}
