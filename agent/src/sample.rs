//! `sample`: files of `/proc` and `/sys`, read again and again at fixed instants.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use nix::errno::Errno;

use crate::clock;
use crate::outbox::Outbox;
use crate::protocol::{self, Event, Failure, MAX_FRAME, MAX_HEADER};

/// The files' contents together must fit into one frame.
const LIMIT: usize = MAX_FRAME - MAX_HEADER - 2;
/// How much is asked for at once; a file of `/proc` is often longer than it says.
const CHUNK: usize = 16 * 1024;

/// One `sample` request.
#[derive(Debug)]
pub struct Sampler {
    files: Vec<Option<File>>,
    interval_ns: u64,
    left: Option<u64>,
    ticks: u64,
    due_at: u64,
}

impl Sampler {
    /// Opens the files; one that doesn't open reads as −1. The first tick is now.
    pub fn new(request: &protocol::Sample, now: u64) -> Result<Self, Failure> {
        if request.interval_ns == 0 {
            return Err(Failure::errno("a sample needs an interval", Errno::EINVAL));
        }
        Ok(Self {
            files: request.paths.iter().map(|path| open(path).ok()).collect(),
            interval_ns: request.interval_ns,
            left: request.count,
            ticks: 0,
            due_at: now,
        })
    }

    /// When the next tick is, on `CLOCK_MONOTONIC`.
    pub fn due_at(&self) -> u64 {
        self.due_at
    }

    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// As many were taken as were asked for.
    pub fn is_complete(&self) -> bool {
        self.left == Some(0)
    }

    /// Takes one sample if one is due and there is room for it.
    pub fn tick(&mut self, id: u64, outbox: &mut Outbox) -> Result<(), Failure> {
        let monotonic_ns = clock::monotonic_ns();
        if self.is_complete() || monotonic_ns < self.due_at || !outbox.has_room() {
            return Ok(());
        }
        let realtime_ns = clock::realtime_ns();
        let late_ns = monotonic_ns - self.due_at;
        let mut payload = Vec::new();
        let mut sizes = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let before = payload.len();
            let size = match file.as_ref().map(|file| read_again(file, &mut payload)) {
                Some(Ok(())) => (payload.len() - before) as i64,
                _ => {
                    payload.truncate(before);
                    -1
                }
            };
            sizes.push(size);
            if payload.len() > LIMIT {
                let message = format!("the files of one sample are longer than {LIMIT} bytes");
                return Err(Failure::errno(message, Errno::EFBIG));
            }
        }
        outbox.push(id, &Event::Sample { monotonic_ns, realtime_ns, late_ns, sizes }, &payload);
        self.ticks += 1;
        self.left = self.left.map(|left| left - 1);
        self.due_at = next_tick(self.due_at, self.interval_ns, monotonic_ns);
        Ok(())
    }
}

/// The first tick after `now`: missed ones are not made up for, and those to come stay where they were.
fn next_tick(due_at: u64, interval_ns: u64, now: u64) -> u64 {
    let missed = now.saturating_sub(due_at) / interval_ns;
    due_at.saturating_add(interval_ns.saturating_mul(missed + 1))
}

fn open(path: &str) -> io::Result<File> {
    // Opening a named pipe would block.
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

fn read_again(file: &File, content: &mut Vec<u8>) -> io::Result<()> {
    let start = content.len();
    loop {
        let end = content.len();
        if end > LIMIT {
            return Ok(()); // the caller refuses it
        }
        content.resize(end + CHUNK, 0);
        let result = file.read_at(&mut content[end..], (end - start) as u64);
        content.truncate(end + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_tick_stays_on_the_grid_of_the_first() {
        assert_eq!(next_tick(100, 10, 100), 110);
        assert_eq!(next_tick(100, 10, 109), 110);
        assert_eq!(next_tick(100, 10, 110), 120);
        assert_eq!(next_tick(100, 10, 157), 160);
        assert_eq!(next_tick(100, u64::MAX, 157), u64::MAX);
    }
}
