//! The root file system: read-only layers, one over the other, and a writable layer in memory on top; or a disk.
//!
//! Sources: `mount(2)`, `Documentation/filesystems/overlayfs.rst`.

use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::error::InitError;
use super::mounts::directory;

/// Where the new root file system is put together.
pub const ROOT: &str = "/root-new";
const LAYERS: &str = "/layers";
const WRITABLE: &str = "/writable";
const FAVOURITE: &str = "erofs";

/// Mounts the layers (lowest first) and, over them, the root file system.
pub fn assemble(disks: &[PathBuf]) -> Result<(), InitError> {
    let known =
        fs::read_to_string("/proc/filesystems").map_err(InitError::file("read", "/proc/filesystems"))?;
    let known = filesystems(&known);
    for (index, disk) in disks.iter().enumerate() {
        mount_layer(index, disk, &known)?;
    }
    let failed = |what: &str| {
        let what = what.to_owned();
        move |errno| InitError::Mount { what, errno }
    };
    directory(WRITABLE)?;
    mount(Some("tmpfs"), WRITABLE, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .map_err(failed("the writable layer (tmpfs)"))?;
    directory(&format!("{WRITABLE}/upper"))?;
    directory(&format!("{WRITABLE}/work"))?;
    directory(ROOT)?;
    mount(
        Some("overlay"),
        ROOT,
        Some("overlay"),
        MsFlags::empty(),
        Some(overlay_options(disks.len()).as_str()),
    )
    .map_err(failed("the root file system (overlay)"))?;
    // The overlay holds them by itself; here they would only be in the way.
    for path in (0..disks.len()).map(layer_path).chain([WRITABLE.into()]) {
        umount2(path.as_str(), MntFlags::MNT_DETACH).map_err(InitError::system("hide a layer's mount"))?;
    }
    Ok(())
}

/// Mounts the root file system that a disk holds, to be written to.
pub fn mount_disk(disk: &Path) -> Result<(), InitError> {
    directory(ROOT)?;
    let nothing = None::<&str>;
    mount(Some(disk), ROOT, Some("ext4"), MsFlags::empty(), nothing).map_err(|errno| InitError::Mount {
        what: format!("the root file system (ext4) on {}", disk.display()),
        errno,
    })
}

fn mount_layer(index: usize, disk: &Path, known: &[&str]) -> Result<(), InitError> {
    let path = layer_path(index);
    directory(&path)?;
    let mut tried = Vec::new();
    for &kind in known {
        match mount(Some(disk), path.as_str(), Some(kind), MsFlags::MS_RDONLY, None::<&str>) {
            Ok(()) => return Ok(()),
            // EINVAL is how a file system says that the disk holds another.
            Err(Errno::EINVAL) => tried.push(kind.to_owned()),
            Err(errno) => tried.push(format!("{kind} ({errno})")),
        }
    }
    let tried = match tried.is_empty() {
        true => "the kernel knows no file system for disks; a module is missing".into(),
        false => format!("it holds none of {}", tried.join(", ")),
    };
    Err(InitError::Layer { index, disk: disk.into(), tried })
}

fn layer_path(index: usize) -> String {
    format!("{LAYERS}/{index}")
}

/// Those of `/proc/filesystems` that are for disks, the favourite first, the others in the kernel's order.
fn filesystems(known: &str) -> Vec<&str> {
    let mut names: Vec<_> = known
        .lines()
        .filter(|line| !line.starts_with("nodev"))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_by_key(|name| *name != FAVOURITE);
    names
}

/// In `lowerdir`, the uppermost comes first.
fn overlay_options(layers: usize) -> String {
    let lower: Vec<_> = (0..layers).rev().map(layer_path).collect();
    format!("lowerdir={},upperdir={WRITABLE}/upper,workdir={WRITABLE}/work", lower.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_without_a_device_are_left_out_and_erofs_is_tried_first() {
        let known = "nodev\tsysfs\nnodev\ttmpfs\n\text3\n\text4\nnodev\toverlay\n\terofs\n\txfs\n";
        assert_eq!(filesystems(known), ["erofs", "ext3", "ext4", "xfs"]);
        assert_eq!(filesystems(""), [""; 0]);
    }

    #[test]
    fn the_highest_layer_is_named_first() {
        let expected =
            "lowerdir=/layers/2:/layers/1:/layers/0,upperdir=/writable/upper,workdir=/writable/work";
        assert_eq!(overlay_options(3), expected);
        assert_eq!(overlay_options(1), "lowerdir=/layers/0,upperdir=/writable/upper,workdir=/writable/work");
    }
}
