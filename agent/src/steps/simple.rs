//! Steps that are one system call or two.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink,
};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::too_much;
use crate::protocol::{Failure, StepResult};

/// Opening a named pipe or a serial line would block; for files it means nothing.
const FLAGS: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;
const PERMISSIONS: u32 = 0o7777;
/// Bytes of each file that `contents` brings.
const SMALL: usize = 4_096;
const PASSABLE: u32 = 0o001;
/// Bytes of a block, as `stat(2)` counts them.
const BLOCK: u64 = 512;

fn failing<T>(what: &str, path: &str, result: io::Result<T>) -> Result<T, Failure> {
    result.map_err(|error| Failure::io(format!("can't {what} {path:?}"), &error))
}

pub fn look(path: &str) -> Result<StepResult, Failure> {
    let found = failing("look at", path, fs::symlink_metadata(path))?;
    let kind = match found.file_type() {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "directory",
        kind if kind.is_symlink() => "link",
        kind if kind.is_block_device() => "block",
        kind if kind.is_char_device() => "character",
        kind if kind.is_fifo() => "pipe",
        _ => "socket",
    };
    Ok(StepResult {
        size: Some(found.size()),
        kind: Some(kind),
        allocated: Some(found.blocks() * BLOCK),
        mode: Some(found.mode() & PERMISSIONS),
        owner: Some(found.uid()),
        device: Some(found.dev()),
        ..StepResult::default()
    })
}

pub fn make_directory(path: &str, mode: u32, parents: bool) -> Result<(), Failure> {
    let made = if parents {
        DirBuilder::new().recursive(true).mode(0o755).create(path)
    } else {
        DirBuilder::new().mode(mode & PERMISSIONS).create(path)
    };
    failing("make the directory", path, made)?;
    if parents || fs::symlink_metadata(path).is_ok_and(|made| made.mode() & PERMISSIONS == mode & PERMISSIONS)
    {
        return Ok(()); // those of sysfs and configfs can't be changed, and need not be
    }
    failing("set the mode of", path, fs::set_permissions(path, Permissions::from_mode(mode & PERMISSIONS)))
}

pub fn remove_directory(path: &str) -> Result<(), Failure> {
    failing("remove the directory", path, fs::remove_dir(path))
}

pub fn unlink(path: &str) -> Result<(), Failure> {
    failing("remove", path, fs::remove_file(path))
}

pub fn link(path: &str, target: &str) -> Result<(), Failure> {
    failing("make the link", path, symlink(target, path))
}

pub fn read_link(path: &str, room: usize) -> Result<Vec<u8>, Failure> {
    let target = failing("read the link", path, fs::read_link(path))?.into_os_string().into_vec();
    if target.len() > room { Err(too_much()) } else { Ok(target) }
}

pub fn read(path: &str, limit: u64, room: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let most = limit.min(room as u64 + 1);
    let read = OpenOptions::new().read(true).custom_flags(FLAGS).open(path);
    match read.and_then(|file| file.take(most).read_to_end(&mut bytes)) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => failing("read", path, Err(error))?,
        _ if bytes.len() > room => Err(too_much())?,
        _ => {}
    }
    Ok(bytes)
}

pub fn write(path: &str, data: &[u8], create: Option<u32>) -> Result<StepResult, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(FLAGS);
    if let Some(mode) = create {
        options.create(true).truncate(true).mode(mode & PERMISSIONS);
    }
    let file = failing("write", path, options.open(path))?;
    failing("write", path, write_all(&file, data))?;
    if let Some(mode) = create.filter(|mode| !has_mode(&file, mode & PERMISSIONS)) {
        failing("set the mode of", path, file.set_permissions(Permissions::from_mode(mode & PERMISSIONS)))?;
    }
    Ok(StepResult::of_size(data.len()))
}

/// One write(2) where the file takes it whole; also of nothing, which some files of sysfs wait for.
fn write_all(mut file: &File, data: &[u8]) -> io::Result<()> {
    if data.is_empty() { file.write(data).map(drop) } else { file.write_all(data) }
}

fn has_mode(file: &File, mode: u32) -> bool {
    file.metadata().is_ok_and(|found| found.mode() & PERMISSIONS == mode)
}

pub fn resize(path: &str, size: u64) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o644).custom_flags(FLAGS).open(path);
    failing("resize", path, file.and_then(|file| file.set_len(size)))
}

pub fn give(path: &str, user: u32, group: u32) -> Result<(), Failure> {
    let given = open_itself(path).and_then(|file| fchown(&file, Some(user), Some(group)));
    failing("give to another user", path, given)
}

pub fn open_up(path: &str) -> Result<(), Failure> {
    let opened = open_itself(path).and_then(|file| {
        let mode = file.metadata()?.mode() & PERMISSIONS;
        if mode & PASSABLE != 0 {
            return Ok(());
        }
        file.set_permissions(Permissions::from_mode(mode | PASSABLE))
    });
    failing("open up", path, opened)
}

/// What is there, unless it is a link.
fn open_itself(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(FLAGS | libc::O_NOFOLLOW).open(path)
}

pub fn names(path: &str, targets: bool, room: usize) -> Result<Vec<u8>, Failure> {
    let mut listing = Vec::new();
    for entry in failing("list", path, fs::read_dir(path))? {
        let entry = failing("list", path, entry)?;
        listing.extend_from_slice(entry.file_name().as_bytes());
        listing.push(0);
        if targets {
            // It may have gone meanwhile, or be no link.
            let target = fs::read_link(entry.path()).unwrap_or_default();
            listing.extend_from_slice(target.as_os_str().as_bytes());
            listing.push(0);
        }
        if listing.len() > room {
            return Err(too_much());
        }
    }
    Ok(listing)
}

/// Name and contents of each regular file in a directory, by name, a NUL after both. What can't be read is left out.
///
/// Hundreds of attributes of a kernel module are looked at after each test of a suite: four system calls for each, which
/// begin at the directory, and one buffer for all.
pub fn contents(path: &str, room: usize) -> Result<Vec<u8>, Failure> {
    let directory = failing("list", path, File::open(path))?;
    let mut names = Vec::new();
    for entry in failing("list", path, fs::read_dir(path))? {
        let entry = failing("list", path, entry)?;
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            names.push(entry.file_name());
        }
    }
    names.sort();
    let (mut listing, mut buffer) = (Vec::new(), [0; SMALL]);
    for name in names {
        let Ok(size) = read_small(&directory, &name, &mut buffer) else { continue };
        listing.extend_from_slice(name.as_bytes());
        listing.push(0);
        listing.extend(buffer[..size].iter().take_while(|byte| **byte != 0));
        listing.push(0);
        if listing.len() > room {
            return Err(too_much());
        }
    }
    Ok(listing)
}

/// Bytes of a file in this directory, as far as there is room for them.
fn read_small(directory: &File, name: &OsStr, buffer: &mut [u8]) -> nix::Result<usize> {
    let flags = OFlag::from_bits_retain(FLAGS | libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let file = openat(directory, name, flags, Mode::empty())?;
    let mut size = 0;
    while size < buffer.len() {
        match nix::unistd::read(&file, &mut buffer[size..]) {
            Ok(0) => break,
            Ok(count) => size += count,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(size)
}

pub fn sync(path: Option<&str>) -> Result<(), Failure> {
    let Some(path) = path else {
        nix::unistd::sync();
        return Ok(());
    };
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(Path::new(path));
    let synced = file.and_then(|file| {
        let is_directory = file.metadata()?.is_dir();
        // Of a disk, what is in its own cache.
        if is_directory { nix::unistd::syncfs(&file).map_err(io::Error::from) } else { file.sync_all() }
    });
    failing("write back", path, synced)
}
