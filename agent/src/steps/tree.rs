//! Directories with all that they hold: removed, or listed. No link is followed.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::own::{self, is};
use super::too_much;
use crate::protocol::Failure;

const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// Directories that are open at once. What lies deeper is moved up before it is removed, and can't be listed.
const DEEPEST: usize = 64;
/// Names that are read before what bears them is removed.
const AT_A_TIME: usize = 1_024;

/// Removes what is at a path of Storlab's own; false where nothing is. What is mounted in there stays, with what leads
/// to it, and is named; all else is removed nevertheless.
pub fn remove(path: &str, top: &str, stopped: &AtomicBool) -> Result<bool, Failure> {
    let Some(owned) = own::find(path, top)? else { return Ok(false) };
    let failing = |name: &CStr, errno| Failure::errno(format!("can't remove {name:?} of {path:?}"), errno);
    let name = c_string(owned.name);
    if !is(&owned.stat, SFlag::S_IFDIR) {
        let removed = gone(unlinkat(&owned.parent, name.as_c_str(), UnlinkatFlags::NoRemoveDir));
        return removed.map(|()| true).map_err(|errno| failing(&name, errno));
    }
    let whole = openat(&owned.parent, name.as_c_str(), FOLDER, Mode::empty());
    let whole = whole.map_err(|errno| failing(&name, errno))?;
    let mut removal = Removal { whole, device: owned.stat.st_dev, stopped, kept: None, moved: 0 };
    match (removal.directory(&owned.parent, &name, 1), removal.kept) {
        (Ok(()), _) => Ok(true),
        (Err(_), Some((name, errno))) => Err(failing(&name, errno)),
        (Err(errno), None) => Err(failing(&name, errno)),
    }
}

struct Removal<'a> {
    whole: OwnedFd,
    /// Of the file system that it lies on.
    device: u64,
    stopped: &'a AtomicBool,
    /// The first that could not be removed, and why.
    kept: Option<(CString, Errno)>,
    moved: usize,
}

impl Removal<'_> {
    fn directory(&mut self, parent: &impl AsFd, name: &CStr, depth: usize) -> Result<(), Errno> {
        loop {
            let mut folder = Dir::openat(parent, name, FOLDER, Mode::empty())?;
            if fstat(&folder)?.st_dev != self.device {
                return Err(Errno::EXDEV);
            }
            let names = read_names(&mut folder, AT_A_TIME)?;
            let mut progress = false;
            for name in names {
                if self.stopped.load(Ordering::Relaxed) {
                    return Err(Errno::ECANCELED);
                }
                match self.entry(&folder, &name, depth) {
                    Ok(()) => progress = true,
                    Err(errno) => drop(self.kept.get_or_insert((name, errno))),
                }
            }
            match gone(unlinkat(parent, name, UnlinkatFlags::RemoveDir)) {
                // There were more, or something was moved here.
                Err(Errno::ENOTEMPTY | Errno::EEXIST) if progress => {}
                ended => return ended,
            }
        }
    }

    fn entry(&mut self, folder: &Dir, name: &CStr, depth: usize) -> Result<(), Errno> {
        match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
            Err(Errno::EISDIR | Errno::EPERM) if is_directory(folder, name) => {}
            removed => return gone(removed),
        }
        if depth == DEEPEST { self.move_up(folder, name) } else { self.directory(folder, name, depth + 1) }
    }

    /// Lets a directory be removed from the top, by a name that is free there.
    fn move_up(&mut self, folder: &Dir, name: &CStr) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let free = format!("deeper-{}", self.moved);
            match renameat(folder, name, &self.whole, free.as_str()) {
                Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
                moved => return moved,
            }
        }
    }
}

/// Regular files in a directory and all below it: size and path from there, each `SIZE PATH` and a NUL.
pub fn files(path: &str, room: usize, stopped: &AtomicBool) -> Result<Vec<u8>, Failure> {
    let mut listing = Listing { found: Vec::new(), path: Vec::new(), room, stopped };
    match listing.directory(&AT_FDCWD, &c_string(OsStr::new(path)), 1) {
        Ok(()) => Ok(listing.found),
        Err(Errno::EFBIG) => Err(too_much()),
        Err(errno) => Err(Failure::errno(format!("can't list {path:?}"), errno)),
    }
}

struct Listing<'a> {
    found: Vec<u8>,
    /// Of the directory that is being read, from the first one on.
    path: Vec<u8>,
    room: usize,
    stopped: &'a AtomicBool,
}

impl Listing<'_> {
    fn directory(&mut self, parent: &impl AsFd, name: &CStr, depth: usize) -> Result<(), Errno> {
        let mut folder = Dir::openat(parent, name, FOLDER, Mode::empty())?;
        for name in read_names(&mut folder, usize::MAX)? {
            if self.stopped.load(Ordering::Relaxed) {
                return Err(Errno::ECANCELED);
            }
            let stat = match fstatat(&folder, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(Errno::ENOENT) => continue, // it was a passing one
                stat => stat?,
            };
            let before = self.path.len();
            self.path.extend_from_slice(name.as_bytes());
            if is(&stat, SFlag::S_IFREG) {
                self.found.extend_from_slice(format!("{} ", stat.st_size).as_bytes());
                self.found.extend_from_slice(&self.path);
                self.found.push(0);
            } else if is(&stat, SFlag::S_IFDIR) {
                self.path.push(b'/');
                if depth == DEEPEST {
                    return Err(Errno::ENAMETOOLONG);
                }
                match self.directory(&folder, &name, depth + 1) {
                    Err(Errno::ENOENT) => {}
                    listed => listed?,
                }
            }
            self.path.truncate(before);
            if self.found.len() > self.room {
                return Err(Errno::EFBIG);
            }
        }
        Ok(())
    }
}

fn read_names(folder: &mut Dir, most: usize) -> Result<Vec<CString>, Errno> {
    let names = folder.iter().map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    let own = |name: &CString| matches!(name.as_bytes(), b"." | b"..");
    names.filter(|name| !name.as_ref().is_ok_and(own)).take(most).collect()
}

fn is_directory(folder: &Dir, name: &CStr) -> bool {
    fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| is(&stat, SFlag::S_IFDIR))
}

/// What somebody else has removed is gone, too.
fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    if removed == Err(Errno::ENOENT) { Ok(()) } else { removed }
}

/// A path's own name holds no NUL where the path could be looked at.
fn c_string(name: &OsStr) -> CString {
    CString::new(name.as_bytes()).unwrap_or_default()
}
