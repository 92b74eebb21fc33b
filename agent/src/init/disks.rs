//! The disks that hold the root file system: virtio-blk devices known by the serial number that the launcher gave them.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::InitError;
use super::wait;

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
