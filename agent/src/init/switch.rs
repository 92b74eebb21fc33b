//! From the initramfs to the root file system, as `switch_root(8)` does it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};
use nix::unistd::{chdir, chroot};

use super::error::InitError;
use super::mounts::{MOVED, directory};

/// `linux/magic.h`; nix doesn't name it.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// Is the root file system one that the kernel has unpacked into memory? Only such a one may be emptied.
pub fn in_initramfs() -> bool {
    statfs("/").is_ok_and(|root| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&root.filesystem_type()))
}

/// Makes `root` the root file system, and frees what the initramfs took.
pub fn switch_to(root: &str) -> Result<(), InitError> {
    let nothing = None::<&str>;
    for path in MOVED {
        let target = format!("{root}{path}");
        directory(&target)?;
        mount(Some(path), target.as_str(), nothing, MsFlags::MS_MOVE, nothing)
            .map_err(|errno| InitError::Mount { what: target, errno })?;
    }
    if let Ok(initramfs) = fs::metadata("/") {
        empty(Path::new("/"), initramfs.dev());
    }
    chdir(root).map_err(InitError::system("enter the root file system"))?;
    mount(Some("."), "/", nothing, MsFlags::MS_MOVE, nothing)
        .map_err(|errno| InitError::Mount { what: "the root file system on /".into(), errno })?;
    chroot(".").map_err(InitError::system("change to the root file system"))?;
    chdir("/").map_err(InitError::system("enter the root file system"))
}

/// Deletes all files on this device, below this directory. What can't be deleted only goes on taking memory.
fn empty(directory: &Path, device: u64) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.dev() != device {
            continue; // another file system is mounted here: the root file system to be
        }
        if metadata.is_dir() {
            empty(&path, device);
            let _ = fs::remove_dir(&path);
        } else {
            let _ = fs::remove_file(&path);
        }
    }
}
