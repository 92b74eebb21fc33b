//! What one worker has done in one phase: counts and latencies, no word of single files.

use nix::errno::Errno;
use serde::Serialize;

use super::latency::Latencies;
use crate::clock::{self, MILLISECOND};

/// How much time one number of the progress stands for.
pub const SLOT_NS: u64 = 200 * MILLISECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    Mkdir,
    /// A whole file: open, writes, fsync, close.
    Create,
    /// The `open` that makes a file.
    Open,
    /// One `write`.
    Write,
    /// `fsync` or `fdatasync` of a file.
    Sync,
    /// `fsync` of a directory.
    SyncDirectory,
    /// The `close` of a file that was written.
    Close,
    /// A whole file: open, reads, close.
    Read,
    /// `fstatat`.
    Stat,
    /// `unlinkat`.
    Delete,
    Rmdir,
}

const OPERATIONS: usize = Operation::Rmdir as usize + 1;

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mkdir => "mkdir",
            Self::Create => "create",
            Self::Open => "open",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::SyncDirectory => "sync-directory",
            Self::Close => "close",
            Self::Read => "read",
            Self::Stat => "stat",
            Self::Delete => "delete",
            Self::Rmdir => "rmdir",
        }
    }
}

/// Counts and latencies of one worker in one phase.
#[derive(Debug)]
pub struct Tally {
    /// Files (or directories) that are done.
    pub files: u64,
    /// Bytes written or read.
    pub bytes: u64,
    /// Files done in each `SLOT_NS` since the phase's start.
    pub progress: Vec<u64>,
    /// `CLOCK_MONOTONIC` when the work began.
    pub start_ns: u64,
    pub end_ns: u64,
    /// The phase's time was over before all files were done.
    pub limited: bool,
    operations: [Option<Latencies>; OPERATIONS],
}

impl Tally {
    pub fn start() -> Self {
        let now = clock::monotonic_ns();
        Self {
            files: 0,
            bytes: 0,
            progress: Vec::new(),
            start_ns: now,
            end_ns: now,
            limited: false,
            operations: [const { None }; OPERATIONS],
        }
    }

    /// Does and times one operation; gives what it gave, and the nanoseconds.
    pub fn timed<T>(
        &mut self,
        operation: Operation,
        call: impl FnOnce() -> nix::Result<T>,
    ) -> Result<(T, u64), (Operation, Errno)> {
        let before = clock::monotonic_ns();
        let result = call();
        let after = clock::monotonic_ns();
        let result = result.map_err(|errno| (operation, errno))?;
        self.add(operation, after - before);
        self.end_ns = after;
        Ok((result, after - before))
    }

    /// One more operation that took so long.
    pub fn add(&mut self, operation: Operation, latency_ns: u64) {
        self.operations[operation as usize].get_or_insert_default().add(latency_ns);
    }

    pub fn done(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        let slot = ((self.end_ns - self.start_ns) / SLOT_NS) as usize;
        if self.progress.len() <= slot {
            self.progress.resize(slot + 1, 0);
        }
        self.progress[slot] += 1;
    }

    pub fn operations(&self) -> impl Iterator<Item = (usize, &Latencies)> {
        self.operations.iter().enumerate().filter_map(|(at, latencies)| Some((at, latencies.as_ref()?)))
    }
}

pub fn operation(number: usize) -> Operation {
    use Operation::{Close, Create, Delete, Mkdir, Open, Read, Rmdir, Stat, Sync, SyncDirectory, Write};
    const ALL: [Operation; OPERATIONS] =
        [Mkdir, Create, Open, Write, Sync, SyncDirectory, Close, Read, Stat, Delete, Rmdir];
    ALL[number]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_found_by_their_number() {
        for number in 0..OPERATIONS {
            assert_eq!(operation(number) as usize, number);
        }
    }

    #[test]
    fn what_fails_is_not_counted() {
        let mut tally = Tally::start();
        assert_eq!(
            tally.timed(Operation::Stat, || Err::<(), _>(Errno::ENOENT)),
            Err((Operation::Stat, Errno::ENOENT))
        );
        assert_eq!(tally.operations().count(), 0);
    }
}
