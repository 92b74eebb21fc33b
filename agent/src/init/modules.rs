//! Kernel modules: those that the initramfs brings are loaded in the order that its maker has found out.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

use super::console::say;

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
    fn the_order_is_one_name_a_line() {
        let order = "libcrc32c.ko\n\n erofs.ko \n../x/overlay.ko\n";
        assert_eq!(names(order).collect::<Vec<_>>(), ["libcrc32c.ko", "erofs.ko", "overlay.ko"]);
    }

    #[test]
    fn a_directory_without_an_order_has_nothing_to_load() {
        load(Path::new("/nonexistent"));
    }
}
