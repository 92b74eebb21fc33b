//! A mount namespace in which all is read-only, but for what is named.
//!
//! Sources: `mount_namespaces(7)`, `mount_setattr(2)` (Linux 5.12).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use super::tree::Tree;
use super::{Confinement, Obstacle, devices};
use crate::sys::{self, MountAttributes};

/// Gets a mount namespace of its own; `false` where an ordinary user may not have one.
pub fn separate() -> Result<bool, Obstacle> {
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => {}
        Err(Errno::EPERM) => {
            let (user, group) = (geteuid(), getegid());
            if unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).is_err() {
                return Ok(false);
            }
            let map = |file: &str, line: String| {
                fs::write(format!("/proc/self/{file}"), line).map_err(Obstacle::io(file))
            };
            map("setgroups", "deny".into())?;
            map("uid_map", format!("{user} {user} 1"))?;
            map("gid_map", format!("{group} {group} 1"))?;
        }
        Err(errno) => return Err(Obstacle { what: "unshare".into(), errno }),
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .map_err(Obstacle::of("mount --make-rprivate /"))?;
    Ok(true)
}

/// Lets go of what other runs of Storlab have mounted: a copy in this namespace would keep it in use after they have
/// unmounted it. An ordinary user may not; what can't be unmounted stays.
fn forget_others(confinement: &Confinement) -> Result<(), Obstacle> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(Obstacle::io("/proc/self/mountinfo"))?;
    let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let Confinement { writable, devices, shown, .. } = confinement;
    let own = || writable.iter().chain(devices).chain(shown.iter().flat_map(|(what, place)| [what, place]));
    let needed = |mount: &Path| own().any(|own| Path::new(own).starts_with(mount));
    let others = paths.filter(|path| is_storlabs(path) && !needed(path));
    for path in others.collect::<Vec<_>>().iter().rev() {
        let _ = umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    }
    Ok(())
}

fn is_storlabs(path: &Path) -> bool {
    let named =
        |part: &OsStr| part.as_bytes().starts_with(b"storlab-") || part.as_bytes().starts_with(b".storlab-");
    path.iter().any(named)
}

/// Space, tab, newline and backslash stand as octal numbers.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let [first, more @ ..] = rest {
        let octal = more.get(..3).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        (bytes, rest) = match (first, octal) {
            (b'\\', Some(byte)) => ([bytes, vec![byte]].concat(), &more[3..]),
            _ => ([bytes, vec![*first]].concat(), more),
        };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Makes all read-only but what is named, and hides the machine's devices.
pub fn narrow(confinement: &Confinement) -> Result<(), Obstacle> {
    forget_others(confinement)?;
    let mut writable = Vec::new();
    for path in &confinement.writable {
        if let Some(tree) = Tree::of(path)? {
            writable.push(tree.without_devices()?);
        }
    }
    let mut shown = Vec::new();
    for (what, place) in &confinement.shown {
        let missing = || Obstacle { what: what.clone(), errno: Errno::ENOENT };
        shown.push((Tree::of(what)?.ok_or_else(missing)?.read_only()?, place));
    }
    let nodes = devices::gather(&confinement.devices)?;
    let root = fs::File::open("/").map_err(Obstacle::io("/"))?;
    sys::set_mounts(root.as_fd(), MountAttributes::RDONLY | MountAttributes::NODEV)
        .map_err(Obstacle::of("mount_setattr of /"))?;
    devices::replace(&nodes, writable.iter().map(Tree::path))?;
    // An outer one first: it would hide what lies within it.
    writable.sort_by_key(|tree| tree.path().components().count());
    writable.iter().try_for_each(Tree::attach)?;
    shown.iter().try_for_each(|(tree, place)| tree.attach_at(Path::new(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_read_as_the_kernel_writes_it() {
        assert_eq!(unescape("/mnt/a\\040b\\134c\\9"), PathBuf::from("/mnt/a b\\c\\9"));
    }

    #[test]
    fn only_what_bears_the_name_of_a_run_is_storlabs() {
        assert!(is_storlabs(Path::new("/var/tmp/storlab-20261122-141630-024b/vm/1-mnt")));
        assert!(is_storlabs(Path::new("/data/.storlab-20261122-141630-024b")));
        assert!(!is_storlabs(Path::new("/home/storlab/data")));
    }
}
