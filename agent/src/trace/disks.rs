//! Disks by name and by device number, as `/sys` has them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A disk, or a part of one: the sectors (of 512 bytes) from `first` to `end`, which isn't in it any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Device number of the whole disk, as the kernel has it inside: `major << 20 | minor`.
    pub device: u32,
    /// Its first sector.
    pub first: u64,
    /// The sector after its last.
    pub end: u64,
    /// It takes bios, and makes no requests of them: device mapper, zvols, MD.
    pub takes_bios: bool,
}

/// A name that isn't that of a disk.
#[derive(Debug, thiserror::Error)]
#[error("there is no disk {0:?} here; `lsblk` lists those that there are")]
pub struct NoDisk(pub String);

/// Finds the disk or partition of this name. A slash in it, as AoE's disks have one, is another sign in `/sys`.
pub fn find(sys: &Path, name: &str) -> Result<Extent, NoDisk> {
    let none = || NoDisk(name.to_owned());
    if name.is_empty() || name.starts_with('.') {
        return Err(none());
    }
    let folder =
        fs::canonicalize(sys.join("class/block").join(name.replace('/', "!"))).map_err(|_| none())?;
    let number = |folder: &Path, file| read_number(folder, file).map_err(|_| none());
    let is_part = folder.join("partition").exists();
    let whole = if is_part { folder.parent().ok_or_else(none)? } else { &folder };
    let first = if is_part { number(&folder, "start")? } else { 0 };
    let end = if is_part { first.saturating_add(number(&folder, "size")?) } else { u64::MAX };
    let device = device_number(whole).ok_or_else(none)?;
    Ok(Extent { device, first, end, takes_bios: !whole.join("mq").exists() })
}

fn read_number(folder: &Path, file: &str) -> io::Result<u64> {
    fs::read_to_string(folder.join(file))?.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

fn device_number(folder: &Path) -> Option<u32> {
    parse_number(fs::read_to_string(folder.join("dev")).ok()?.trim())
}

fn parse_number(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

/// Names of devices, looked up once each: a disk that goes away meanwhile keeps its name in what was counted.
#[derive(Debug)]
pub struct Names {
    sys: PathBuf,
    known: HashMap<u32, String>,
}

impl Names {
    /// Knows all that there are now.
    pub fn new(sys: &Path) -> Self {
        let found = fs::read_dir(sys.join("dev/block")).into_iter().flatten().flatten();
        let numbers = found.filter_map(|entry| parse_number(entry.file_name().to_str()?));
        Self { sys: sys.to_owned(), known: numbers.map(|device| (device, name_of(sys, device))).collect() }
    }

    /// The name of a device; `MAJOR:MINOR` where it came and went since `new`.
    pub fn of(&mut self, device: u32) -> String {
        let Self { sys, known } = self;
        known.entry(device).or_insert_with(|| name_of(sys, device)).clone()
    }
}

fn name_of(sys: &Path, device: u32) -> String {
    let number = format!("{}:{}", device >> 20, device & 0xf_ffff);
    let found = fs::canonicalize(sys.join("dev/block").join(&number));
    let name = found.ok().and_then(|folder| Some(folder.file_name()?.to_str()?.replace('!', "/")));
    name.unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(folder: &Path) {
        let part = folder.join("devices/vda/vda1");
        fs::create_dir_all(&part).unwrap();
        fs::create_dir_all(folder.join("devices/vda/mq")).unwrap();
        fs::create_dir_all(folder.join("devices/dm-0")).unwrap();
        fs::write(folder.join("devices/dm-0/dev"), "253:0\n").unwrap();
        fs::create_dir_all(folder.join("devices/etherd!e1.0")).unwrap();
        fs::write(folder.join("devices/etherd!e1.0/dev"), "152:0\n").unwrap();
        fs::create_dir_all(folder.join("class/block")).unwrap();
        fs::create_dir_all(folder.join("dev/block")).unwrap();
        fs::write(folder.join("devices/vda/dev"), "254:0\n").unwrap();
        for (file, content) in
            [("dev", "254:1\n"), ("partition", "1\n"), ("start", "2048\n"), ("size", "4096\n")]
        {
            fs::write(part.join(file), content).unwrap();
        }
        for (link, to) in [
            ("class/block/vda", "devices/vda"),
            ("class/block/vda1", "devices/vda/vda1"),
            ("class/block/dm-0", "devices/dm-0"),
            ("class/block/etherd!e1.0", "devices/etherd!e1.0"),
        ] {
            std::os::unix::fs::symlink(folder.join(to), folder.join(link)).unwrap();
        }
        std::os::unix::fs::symlink(folder.join("devices/vda"), folder.join("dev/block/254:0")).unwrap();
    }

    #[test]
    fn a_partition_is_a_part_of_its_disk() {
        let folder = std::env::temp_dir().join(format!("storlab-trace-disks-{}", std::process::id()));
        machine(&folder);
        let device = 254 << 20;
        assert_eq!(
            find(&folder, "vda").unwrap(),
            Extent { device, first: 0, end: u64::MAX, takes_bios: false }
        );
        assert_eq!(
            find(&folder, "vda1").unwrap(),
            Extent { device, first: 2048, end: 6144, takes_bios: false }
        );
        assert!(find(&folder, "dm-0").unwrap().takes_bios);
        assert_eq!(find(&folder, "etherd/e1.0").unwrap().device, 152 << 20);
        for wrong in ["vdb", "", "..", "../vda", "class/block/vda"] {
            assert!(find(&folder, wrong).is_err(), "{wrong}");
        }
        let mut names = Names::new(&folder);
        fs::remove_file(folder.join("dev/block/254:0")).unwrap();
        assert_eq!(names.of(device), "vda", "it was there at first");
        assert_eq!(names.of(7 << 20 | 3), "7:3");
        fs::remove_dir_all(folder).unwrap();
    }
}
