//! What one worker does to its files, one after the other.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, close, fdatasync, fsync, read, unlinkat, write};

use super::latency::{Operation, Tally};
use super::random::{Permutation, derive, fill};
use super::spec::{Fsync, Order, Phase, Spec};
use super::spec::{Reason, StormError};
use super::tree::Tree;

/// Memory for direct I/O begins at a multiple of this.
const ALIGNMENT: usize = 4096;
const CONTENT: u64 = 3;
const ORDER: u64 = 4;

struct Failed(Operation, Reason);

impl From<(Operation, Errno)> for Failed {
    fn from((operation, errno): (Operation, Errno)) -> Self {
        Self(operation, errno.into())
    }
}

/// One of several that work at once, for one phase.
pub struct Worker<'a> {
    spec: &'a Spec,
    phase: Phase,
    worker: u64,
    tree: Tree<'a>,
    root: BorrowedFd<'a>,
    stop: &'a AtomicBool,
    path: String,
    given: Block,
    found: Block,
    directory: Option<(u64, OwnedFd)>, // the last that was synced: its number, and it
}

impl<'a> Worker<'a> {
    /// `stop`: somebody has failed, and nobody need go on.
    pub fn new(
        spec: &'a Spec,
        phase: Phase,
        worker: u64,
        root: BorrowedFd<'a>,
        stop: &'a AtomicBool,
    ) -> Self {
        let largest =
            usize::try_from(spec.block.min(spec.sizes.largest() + spec.granule)).unwrap_or(usize::MAX);
        Self {
            spec,
            phase,
            worker,
            tree: Tree::of(spec, worker),
            root,
            stop,
            path: String::new(),
            given: Block::new(largest),
            found: Block::new(if phase == Phase::Read { largest } else { 0 }),
            directory: None,
        }
    }

    /// Does the phase's work on the first `count` files of this worker.
    pub fn work(&mut self, count: u64) -> Result<Tally, StormError> {
        let mut tally = Tally::start();
        let done = match self.phase {
            Phase::Mkdir => self.make_directories(&mut tally),
            Phase::Rmdir => self.remove_directories(&mut tally),
            _ => self.all_files(count, &mut tally),
        };
        done.map_err(|Failed(operation, reason)| {
            self.stop.store(true, Ordering::Relaxed);
            let path = self.spec.root.join(self.path.trim_start_matches("./"));
            StormError { phase: self.phase.name(), operation: operation.name(), path, reason }
        })?;
        Ok(tally)
    }

    fn make_directories(&mut self, tally: &mut Tally) -> Result<(), Failed> {
        let (tree, root) = (self.tree, self.root);
        tree.directories(|path| {
            self.path = path.to_owned();
            tally.timed(Operation::Mkdir, || mkdirat(root, path, Mode::from_bits_truncate(0o755)))?;
            tally.done(0);
            Ok(())
        })
    }

    fn remove_directories(&mut self, tally: &mut Tally) -> Result<(), Failed> {
        let (tree, root) = (self.tree, self.root);
        tree.directories_upwards(|path| {
            self.path = path.to_owned();
            tally.timed(Operation::Rmdir, || unlinkat(root, path, UnlinkatFlags::RemoveDir))?;
            tally.done(0);
            Ok(())
        })
    }

    fn all_files(&mut self, count: u64, tally: &mut Tally) -> Result<(), Failed> {
        let order = (self.spec.order == Order::Random && self.phase != Phase::Create).then(|| {
            Permutation::new(derive(self.spec.seed, ORDER + self.phase as u64, self.worker), count.max(1))
        });
        let limit = self.spec.phase_limit_ns.unwrap_or(u64::MAX);
        for position in 0..count {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if tally.end_ns - tally.start_ns >= limit {
                tally.limited = true;
                break;
            }
            let own = order.map_or(position, |order| order.at(position));
            self.tree.file_path(own, &mut self.path);
            let bytes = match self.phase {
                Phase::Create => self.create(own, tally)?,
                Phase::Read => self.read(own, tally)?,
                Phase::Stat => self.stat(own, tally)?,
                _ => self.delete(tally)?,
            };
            tally.done(bytes);
        }
        Ok(())
    }

    fn direct(&self) -> OFlag {
        if self.spec.direct { OFlag::O_DIRECT } else { OFlag::empty() }
    }

    fn create(&mut self, own: u64, tally: &mut Tally) -> Result<u64, Failed> {
        let number = self.tree.file(own);
        let (size, content) = (self.spec.size(number), derive(self.spec.seed, CONTENT, number));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC | self.direct();
        let (file, mut took) = tally.timed(Operation::Open, || {
            openat(self.root, self.path.as_str(), flags, Mode::from_bits_truncate(0o644))
        })?;
        let mut written = 0;
        while written < size {
            let block = self.given.first(size - written, self.spec.block);
            fill(content, written, block);
            written += write_all(&file, block, tally, &mut took)?;
        }
        match self.spec.fsync {
            Fsync::None => {}
            Fsync::Data => took += tally.timed(Operation::Sync, || fdatasync(&file))?.1,
            Fsync::File | Fsync::Directory => took += tally.timed(Operation::Sync, || fsync(&file))?.1,
        }
        // Over a network some errors, such as a full disk, are only told here.
        took += tally.timed(Operation::Close, || close(file))?.1;
        if self.spec.fsync == Fsync::Directory {
            took += self.sync_directory(self.tree.leaf(own), tally)?;
        }
        tally.add(Operation::Create, took);
        Ok(size)
    }

    fn sync_directory(&mut self, leaf: u64, tally: &mut Tally) -> Result<u64, Failed> {
        let directory = match self.directory.take() {
            Some((number, open)) if number == leaf => open,
            _ => {
                let mut path = String::new();
                self.tree.directory_path(leaf, &mut path);
                let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
                openat(self.root, path.as_str(), flags, Mode::empty())
                    .map_err(|errno| Failed(Operation::SyncDirectory, errno.into()))?
            }
        };
        let ((), took) = tally.timed(Operation::SyncDirectory, || fsync(&directory))?;
        self.directory = Some((leaf, directory));
        Ok(took)
    }

    fn read(&mut self, own: u64, tally: &mut Tally) -> Result<u64, Failed> {
        let number = self.tree.file(own);
        let (size, content) = (self.spec.size(number), derive(self.spec.seed, CONTENT, number));
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | self.direct();
        let failed = |errno| Failed(Operation::Read, Reason::Errno(errno));
        let mut watch = Watch::default();
        let file =
            watch.run(|| openat(self.root, self.path.as_str(), flags, Mode::empty())).map_err(failed)?;
        let mut at = 0;
        while at < size {
            let wanted = self.found.first(size - at, self.spec.block);
            let mut have = 0;
            while have < wanted.len() {
                let got = watch.run(|| uninterrupted(|| read(&file, &mut wanted[have..]))).map_err(failed)?;
                if got == 0 {
                    let end = at + have as u64;
                    return Err(mismatch(Operation::Read, format!("it ends after {end} bytes of {size}")));
                }
                have += got;
            }
            if self.spec.verify {
                let given = self.given.first(size - at, self.spec.block);
                fill(content, at, given);
                if let Some(byte) = (given != wanted).then(|| first_difference(given, wanted)) {
                    let where_ = at + byte as u64;
                    return Err(mismatch(
                        Operation::Read,
                        format!("byte {where_} is not what was written there"),
                    ));
                }
            }
            at += have as u64;
        }
        watch.run(|| close(file)).map_err(failed)?;
        tally.add(Operation::Read, watch.total_ns);
        tally.end_ns = watch.last_ns;
        Ok(size)
    }

    fn stat(&mut self, own: u64, tally: &mut Tally) -> Result<u64, Failed> {
        let size = self.spec.size(self.tree.file(own));
        let (found, _) = tally.timed(Operation::Stat, || {
            fstatat(self.root, self.path.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
        })?;
        if u64::try_from(found.st_size) != Ok(size) {
            return Err(mismatch(Operation::Stat, format!("it has {} bytes, not {size}", found.st_size)));
        }
        Ok(0)
    }

    fn delete(&mut self, tally: &mut Tally) -> Result<u64, Failed> {
        tally.timed(Operation::Delete, || {
            unlinkat(self.root, self.path.as_str(), UnlinkatFlags::NoRemoveDir)
        })?;
        Ok(0)
    }
}

fn mismatch(operation: Operation, what: String) -> Failed {
    Failed(operation, Reason::Mismatch(what))
}

fn first_difference(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).position(|(a, b)| a != b).unwrap_or(0)
}

fn write_all(file: impl AsFd, block: &[u8], tally: &mut Tally, took: &mut u64) -> Result<u64, Failed> {
    let mut left = block;
    while !left.is_empty() {
        let (written, this) = tally.timed(Operation::Write, || uninterrupted(|| write(&file, left)))?;
        if written == 0 {
            return Err(Failed(Operation::Write, Errno::EIO.into())); // or it would never end
        }
        left = &left[written..];
        *took += this;
    }
    Ok(block.len() as u64)
}

fn uninterrupted<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return done,
        }
    }
}

/// Adds up the time of several calls, without what is done between them.
#[derive(Default)]
struct Watch {
    total_ns: u64,
    last_ns: u64,
}

impl Watch {
    fn run<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let before = crate::clock::monotonic_ns();
        let result = call();
        self.last_ns = crate::clock::monotonic_ns();
        self.total_ns += self.last_ns - before;
        result
    }
}

struct Block {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Block {
    fn new(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, length }
    }

    /// As much of it as is wanted, and as one block may have.
    fn first(&mut self, wanted: u64, most: u64) -> &mut [u8] {
        let length = usize::try_from(wanted.min(most)).unwrap_or(usize::MAX).min(self.length);
        &mut self.memory[self.start..self.start + length]
    }
}
