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

use super::devices::Nodes;
use super::handed::Heir;
use super::tree::Tree;
use super::{Confinement, Obstacle, bare, devices, hidden};
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
pub fn show_own_processes() -> Result<(), Obstacle> {
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

/// What a program is given of the tree of files.
#[derive(Default)]
struct Given {
    writable: Vec<Tree>,
    visible: Vec<Tree>,
}

impl Given {
    /// With whom all of it is handed to: the heir, if every file system in it can do that, and devices have their nodes in `/dev`.
    fn of<'a>(
        confinement: &Confinement,
        heir: Option<&'a Heir>,
    ) -> Result<(Self, Option<&'a Heir>), Obstacle> {
        let heir =
            heir.filter(|_| confinement.devices.iter().all(|path| Path::new(path).starts_with("/dev")));
        let mut given = Self::default();
        for (path, is_writable) in confinement
            .writable
            .iter()
            .map(|path| (path, true))
            .chain(confinement.visible.iter().map(|path| (path, false)))
        {
            let Some(mut tree) = Tree::of(path)? else { continue };
            if let Some(heir) = heir {
                match tree.handed_to(heir)? {
                    Some(handed) => tree = handed,
                    None => return Self::of(confinement, None),
                }
            }
            if is_writable {
                given.writable.push(tree.without_devices()?);
            } else {
                given.visible.push(tree.read_only()?);
            }
        }
        Ok((given, heir))
    }
}

/// Makes all read-only but what is named, and hides the machine's devices. Gives the heir, if it gets what is named.
pub fn narrow<'a>(confinement: &Confinement, heir: Option<&'a Heir>) -> Result<Option<&'a Heir>, Obstacle> {
    forget_others(confinement)?;
    let (Given { writable, mut visible }, heir) = Given::of(confinement, heir)?;
    let mut shown = Vec::new();
    for (what, place) in &confinement.shown {
        let missing = || Obstacle { what: what.clone(), errno: Errno::ENOENT };
        shown.push((Tree::of(what)?.ok_or_else(missing)?.read_only()?, place));
    }
    let nodes = Nodes::of(&confinement.devices, heir)?;
    if confinement.bare {
        bare::enter(visible.iter().chain(&writable).map(Tree::path), !confinement.mounts_only)?;
    } else {
        if !confinement.mounts_only {
            show_own_processes()?;
        }
        let root = fs::File::open("/").map_err(Obstacle::io("/"))?;
        sys::set_mounts(root.as_fd(), MountAttributes::RDONLY | MountAttributes::NODEV)
            .map_err(Obstacle::of("mount_setattr of /"))?;
    }
    devices::replace(&nodes, heir, writable.iter().map(Tree::path))?;
    let mut given = writable;
    if confinement.bare {
        given.append(&mut visible);
    } else if !confinement.mounts_only {
        let hidden = hidden::hide(visible.iter().chain(&given).map(Tree::path), heir)?;
        visible.retain(|tree| heir.is_some() || hidden.iter().any(|top| tree.path().starts_with(top)));
        given.append(&mut visible);
    }
    // An outer one first: it would hide what lies within it. Of two that are the same, the writable one is the last.
    given.sort_by_key(|tree| (tree.path().components().count(), !tree.is_read_only()));
    given.iter().try_for_each(Tree::attach)?;
    shown.iter().try_for_each(|(tree, place)| tree.attach_at(Path::new(place)))?;
    Ok(heir)
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
