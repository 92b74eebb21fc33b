//! `read` and `write`, on a thread of their own: a disk under load may hold up a flush for many seconds, and
//! neither a time-out nor the clock may wait for it.
//!
//! One job is done at a time, in the order in which they came.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::protocol::{self, DATA_CHUNK, Failure};

/// Opening a named pipe or a serial line would block; for files it means nothing.
const FLAGS: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;

#[derive(Debug)]
pub struct Reading {
    path: String,
    file: Option<File>,
    offset: u64,
    left: Option<u64>,
    /// Bytes read so far.
    pub read: u64,
}

impl Reading {
    pub fn new(request: protocol::Read) -> Self {
        Self { path: request.path, file: None, offset: request.offset, left: request.limit, read: 0 }
    }
}

/// Something to do for the request `id`.
#[derive(Debug)]
pub enum Job {
    Read {
        id: u64,
        reading: Reading,
    },
    /// Write it all.
    Write {
        id: u64,
        /// What and where.
        write: protocol::Write,
    },
}

impl Job {
    pub fn id(&self) -> u64 {
        let (Self::Read { id, .. } | Self::Write { id, .. }) = self;
        *id
    }

    /// Does it bring bytes, for which there must be room?
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

#[derive(Debug)]
pub enum Outcome {
    /// A chunk, and the file to continue with; an empty chunk at the end.
    Chunk {
        id: u64,
        reading: Reading,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    Written {
        id: u64,
        size: u64,
    },
    /// It can't be done.
    Failed {
        id: u64,
        failure: Failure,
    },
}

#[derive(Debug)]
pub struct FileThread {
    jobs: Sender<Job>,
    outcomes: Receiver<Outcome>,
    bell: Arc<EventFd>,
}

impl FileThread {
    pub fn start() -> io::Result<Self> {
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (jobs, todo) = channel();
        let (done, outcomes) = channel();
        let ring = Arc::clone(&bell);
        // It ends with the process: nothing waits for a disk that hangs.
        thread::Builder::new().name("files".into()).stack_size(128 * 1024).spawn(move || {
            for job in todo {
                if done.send(perform(job)).is_err() || ring.write(1).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { jobs, outcomes, bell })
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub fn submit(&self, job: Job) {
        // The thread lives as long as this sender.
        let _ = self.jobs.send(job);
    }

    pub fn outcomes(&self) -> Vec<Outcome> {
        let _ = self.bell.read();
        self.outcomes.try_iter().collect()
    }
}

fn perform(job: Job) -> Outcome {
    match job {
        Job::Read { id, mut reading } => match read_chunk(&mut reading) {
            Ok(bytes) => Outcome::Chunk { id, reading, bytes },
            Err(error) => {
                Outcome::Failed { id, failure: Failure::io(format!("can't read {:?}", reading.path), &error) }
            }
        },
        Job::Write { id, write } => {
            let mut written = 0;
            match write_file(&write, &mut written) {
                Ok(()) => Outcome::Written { id, size: written as u64 },
                Err(error) => {
                    let (path, size) = (&write.path, write.data.len());
                    let message = format!("can't write {path:?} ({written} of {size} bytes are written)");
                    Outcome::Failed { id, failure: Failure::io(message, &error) }
                }
            }
        }
    }
}

fn read_chunk(reading: &mut Reading) -> io::Result<Vec<u8>> {
    let file = match &mut reading.file {
        Some(file) => file,
        None => {
            let mut file = OpenOptions::new().read(true).custom_flags(FLAGS).open(&reading.path)?;
            if reading.offset > 0 {
                file.seek(SeekFrom::Start(reading.offset))?;
            }
            reading.file.insert(file)
        }
    };
    let want = reading.left.unwrap_or(u64::MAX).min(DATA_CHUNK as u64);
    let mut bytes = Vec::new();
    match file.take(want).read_to_end(&mut bytes) {
        // A device that has no more to give now (/dev/kmsg) has been read to its end.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        result => {
            result?;
        }
    }
    let count = bytes.len() as u64;
    reading.read += count;
    reading.left = reading.left.map(|left| left - count);
    Ok(bytes)
}

fn write_file(write: &protocol::Write, written: &mut usize) -> io::Result<()> {
    let mut file = open_for_writing(write)?;
    if write.offset > 0 {
        file.seek(SeekFrom::Start(write.offset))?;
    }
    // One write(2) where the file takes it whole, as files of /proc and /sys need it.
    while *written < write.data.len() {
        match file.write(&write.data[*written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if write.sync { file.sync_all() } else { Ok(()) }
}

fn open_for_writing(write: &protocol::Write) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(write.truncate).custom_flags(FLAGS);
    match options.open(&write.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    let file = options.create(true).mode(write.mode & 0o7777).open(&write.path)?;
    let given = file.metadata()?.permissions().mode() & 0o7777;
    if given != write.mode & 0o7777 {
        match file.set_permissions(Permissions::from_mode(write.mode & 0o7777)) {
            // A file system that keeps none (vfat) is no reason to keep the file from being written.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            result => result?,
        }
    }
    Ok(file)
}
