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
use nix::unistd::geteuid;

use super::tree::Tree;
use super::{Confinement, Obstacle, devices, hidden};
use crate::sys::{self, MountAttributes};

/// Nothing that is mounted in this namespace from now on is seen in others.
pub fn make_private() -> Result<(), Obstacle> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .map_err(Obstacle::of("mount --make-rprivate /"))
}

/// Mounts a `/proc` that has the processes of this namespace alone.
///
/// In a container that hides parts of its own, the kernel lets an ordinary user mount none: that of all stays.
fn show_own_processes() -> Result<(), Obstacle> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>) {
        Err(Errno::EPERM) if !geteuid().is_root() => Ok(()),
        mounted => mounted.map_err(Obstacle::of("a new /proc")),
    }
}

/// Lets go of what other runs of Storlab have mounted: a copy in this namespace would keep it in use after they have
/// unmounted it. An ordinary user may not; what can't be unmounted stays.
fn forget_others(confinement: &Confinement) -> Result<(), Obstacle> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(Obstacle::io("/proc/self/mountinfo"))?;
    let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let Confinement { writable, devices, shown, visible, .. } = confinement;
    let own = || writable.iter().chain(devices).chain(shown.iter().flat_map(|(what, place)| [what, place]));
    let needed = |mount: &Path| own().chain(visible).any(|own| Path::new(own).starts_with(mount));
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
    let mut visible = Vec::new();
    for path in &confinement.visible {
        if let Some(tree) = Tree::of(path)? {
            visible.push(tree.read_only()?);
        }
    }
    let nodes = devices::gather(&confinement.devices)?;
    if !confinement.mounts_only {
        show_own_processes()?;
    }
    let root = fs::File::open("/").map_err(Obstacle::io("/"))?;
    sys::set_mounts(root.as_fd(), MountAttributes::RDONLY | MountAttributes::NODEV)
        .map_err(Obstacle::of("mount_setattr of /"))?;
    devices::replace(&nodes, writable.iter().map(Tree::path))?;
    let mut given = writable;
    if !confinement.mounts_only {
        let hidden = hidden::hide(visible.iter().chain(&given).map(Tree::path))?;
        visible.retain(|tree| hidden.iter().any(|top| tree.path().starts_with(top)));
        given.append(&mut visible);
    }
    // An outer one first: it would hide what lies within it. Of two that are the same, the writable one is the last.
    given.sort_by_key(|tree| (tree.path().components().count(), !tree.is_read_only()));
    given.iter().try_for_each(Tree::attach)?;
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
