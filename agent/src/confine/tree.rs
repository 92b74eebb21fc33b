//! Parts of the tree of files, taken out of it and put back: `open_tree(2)`, `move_mount(2)` (Linux 5.2).

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::Obstacle;
use super::handed::Heir;
use crate::sys::{self, MountAttributes};

/// A part of the tree of files, as it was before all became read-only.
pub struct Tree {
    path: PathBuf,
    mounts: OwnedFd,
    read_only: bool,
}

impl Tree {
    /// What is at a path, with all that is mounted below it; `None` where there is nothing.
    pub fn of(path: impl Into<PathBuf>) -> Result<Option<Self>, Obstacle> {
        let path = path.into();
        match sys::open_tree(&c_path(&path)?) {
            Ok(mounts) => Ok(Some(Self { path, mounts, read_only: false })),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(errno) => Err(Obstacle { what: format!("open_tree of {}", path.display()), errno }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing in it can be written to.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Puts it where it was, over what is there now.
    pub fn attach(&self) -> Result<(), Obstacle> {
        self.attach_at(&self.path)
    }

    /// Puts it over what is somewhere else.
    pub fn attach_at(&self, place: &Path) -> Result<(), Obstacle> {
        let what = || format!("move_mount of {} to {}", self.path.display(), place.display());
        sys::move_mount(self.mounts.as_fd(), &c_path(place)?).map_err(Obstacle::of(what()))
    }

    /// Nothing in it is a device, whoever owns the file system.
    pub fn without_devices(self) -> Result<Self, Obstacle> {
        self.with(MountAttributes::NODEV)
    }

    /// Nothing in it is a device, or can be written to.
    pub fn read_only(self) -> Result<Self, Obstacle> {
        let tree = self.with(MountAttributes::NODEV | MountAttributes::RDONLY)?;
        Ok(Self { read_only: true, ..tree })
    }

    /// Root's files in it are the heir's; `None` where a file system in it can't show them so.
    pub fn handed_to(self, heir: &Heir) -> Result<Option<Self>, Obstacle> {
        let what = format!("mount_setattr of {}", self.path.display());
        let gets = heir.gets(self.mounts.as_fd()).map_err(Obstacle::of(what))?;
        Ok(gets.then_some(self))
    }

    fn with(self, attributes: MountAttributes) -> Result<Self, Obstacle> {
        let what = format!("mount_setattr of {}", self.path.display());
        sys::set_mounts(self.mounts.as_fd(), attributes).map_err(Obstacle::of(what))?;
        Ok(self)
    }
}

fn c_path(path: &Path) -> Result<CString, Obstacle> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Obstacle { what: format!("{} contains a NUL", path.display()), errno: Errno::EINVAL })
}
