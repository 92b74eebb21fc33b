//! The kernel's own file systems and those in memory: what every Linux program expects to find.

use super::console::say;
use super::error::InitError;
use super::wait;
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A file system without a device.
struct Virtual {
    kind: &'static str,
    target: &'static str,
    options: &'static str,
}

const fn fs(kind: &'static str, target: &'static str, options: &'static str) -> Virtual {
    Virtual { kind, target, options }
}

/// What init itself needs. They are moved along when the root file system is switched.
const EARLY: [Virtual; 3] =
    [fs("devtmpfs", "/dev", "mode=755"), fs("proc", "/proc", ""), fs("sysfs", "/sys", "")];
pub const MOVED: [&str; 3] = ["/dev", "/proc", "/sys"];

const NEEDED: [Virtual; 5] = [
    fs("tmpfs", "/run", "mode=755"),
    fs("tmpfs", "/tmp", "mode=1777"),
    fs("devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666"),
    fs("tmpfs", "/dev/shm", "mode=1777"),
    fs("cgroup2", "/sys/fs/cgroup", ""),
];

/// Not every kernel has them; what needs one says so itself.
const WELCOME: [Virtual; 4] = [
    fs("debugfs", "/sys/kernel/debug", ""),
    fs("tracefs", "/sys/kernel/tracing", ""),
    fs("bpf", "/sys/fs/bpf", "mode=700"),
    fs("configfs", "/sys/kernel/config", ""),
];

const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts devices, processes and the kernel's objects in the initramfs.
pub fn early() -> Result<(), InitError> {
    EARLY.iter().try_for_each(attach)
}

/// Mounts the rest, in the final root file system.
pub fn late() -> Result<(), InitError> {
    NEEDED.iter().try_for_each(attach)?;
    for welcome in &WELCOME {
        let _ = attach(welcome);
    }
    for (target, link) in LINKS {
        let _ = symlink(target, link); // exists where something has made it before
    }
    Ok(())
}

fn attach(what: &Virtual) -> Result<(), InitError> {
    directory(what.target)?;
    let mut flags = MsFlags::MS_NOSUID;
    flags.set(MsFlags::MS_NODEV, what.kind != "devtmpfs" && what.kind != "devpts");
    match mount(Some(what.kind), what.target, Some(what.kind), flags, Some(what.options)) {
        Ok(()) | Err(Errno::EBUSY) => Ok(()), // EBUSY: the kernel has mounted it itself
        Err(errno) => Err(InitError::Mount { what: format!("{} on {}", what.kind, what.target), errno }),
    }
}

/// Makes sure that there is one to mount on.
pub fn directory(path: &str) -> Result<(), InitError> {
    fs::create_dir_all(path).map_err(InitError::file("make the directory", path))
}

// The disks that hold the root file system: virtio-blk devices known by the serial number that the launcher gave them.

const BLOCK: &str = "/sys/block";

/// The disks of all layers, lowest first. Waits for those that aren't there yet.
pub fn layers(count: usize) -> Result<Vec<PathBuf>, InitError> {
    (0..count).map(|index| with_serial(&format!("storlab-layer-{index}"))).collect()
}

/// The disk with this serial number. Waits where it isn't there yet.
pub fn with_serial(serial: &str) -> Result<PathBuf, InitError> {
    let find = || {
        let (name, _) = serials(Path::new(BLOCK)).into_iter().find(|(_, found)| found == serial)?;
        Some(Path::new("/dev").join(name)).filter(|device| device.exists())
    };
    let present =
        || serials(Path::new(BLOCK)).into_iter().map(|(disk, serial)| format!("{disk} ({serial})")).collect();
    wait::until(&format!("the disk with the serial number {serial}"), find, present)
}

/// Name and serial number of each disk that has one.
fn serials(block: &Path) -> Vec<(String, String)> {
    let Ok(disks) = fs::read_dir(block) else { return Vec::new() };
    let serial = |disk: fs::DirEntry| {
        let serial = fs::read_to_string(disk.path().join("serial")).ok()?;
        Some((disk.file_name().into_string().ok()?, serial.trim().to_owned()))
    };
    disks.filter_map(Result::ok).filter_map(serial).collect()
}

// Kernel modules: those that the initramfs brings are loaded in the order that its maker has found out.

/// Loads what the file `order` in this directory lists; nothing where there is none. A module that doesn't load may
/// not be needed: what lacks it says so itself, later.
pub fn load(directory: &Path) {
    let Ok(order) = fs::read_to_string(directory.join("order")) else { return };
    for name in names(&order) {
        match load_one(&directory.join(name)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => {
                say(format_args!("warning: the module {} can't be loaded: {errno}", name.display()))
            }
        }
    }
}

/// One file's name a line; an empty line means nothing. A path leads to no other directory.
fn names(order: &str) -> impl Iterator<Item = &OsStr> {
    order.lines().filter_map(|line| Path::new(line.trim()).file_name())
}

fn load_one(path: &Path) -> Result<(), Errno> {
    let file = File::open(path).map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    finit_module(&file, c"", ModuleInitFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_known_by_its_serial_number() -> std::io::Result<()> {
        let block = std::env::temp_dir().join(format!("storlab-init-disks-{}", std::process::id()));
        for (disk, serial) in
            [("vda", Some("storlab-layer-1")), ("vdb", Some("storlab-layer-0\n")), ("loop0", None)]
        {
            fs::create_dir_all(block.join(disk))?;
            if let Some(serial) = serial {
                fs::write(block.join(disk).join("serial"), serial)?;
            }
        }
        let mut found = serials(&block);
        found.sort();
        fs::remove_dir_all(&block)?;
        let expected = [("vda", "storlab-layer-1"), ("vdb", "storlab-layer-0")];
        assert_eq!(found, expected.map(|(disk, serial)| (disk.to_owned(), serial.to_owned())));
        Ok(())
    }
}

#[cfg(test)]
mod tests_of_modules {
    use super::*;

    #[test]
    fn the_order_is_one_name_a_line() {
        let order = "libcrc32c.ko\n\n erofs.ko \n../x/overlay.ko\n";
        assert_eq!(names(order).collect::<Vec<_>>(), ["libcrc32c.ko", "erofs.ko", "overlay.ko"]);
    }

    #[test]
    fn a_directory_without_an_order_has_nothing_to_load() {
        load(Path::new("/nonexistent"));
    }
}
