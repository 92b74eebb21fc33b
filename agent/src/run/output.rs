//! A program's standard output or error, on its way to the controller.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Owner, Run, Stage};
use crate::clock;
use crate::outbox::Outbox;
use crate::poller::{Part, Poller, Token};
use crate::protocol::{Event, Survivors};
use crate::sys;

/// What a pipe holds unless it was told otherwise: `pipe(7)`.
const CHUNK: usize = 65_536;
/// How much of a tool's output is kept to find its version in.
const CAPTURE: usize = 4096;
/// How much of what a step prints is kept, of each of the two.
const STEP_CAPTURE: usize = 65_536;

/// The reading end of a program's standard output or error.
#[derive(Debug)]
pub struct OutputPipe {
    pipe: Option<PipeReader>,
    /// Bytes that may still be passed on.
    room: u64,
    /// Bytes that may still be read.
    left: u64,
    dropped: u64,
}

impl OutputPipe {
    /// Without a `pipe` it goes elsewhere; without `most` all of it is passed on.
    pub fn new(pipe: Option<PipeReader>, token: Token, most: Option<u64>, poller: &Poller) -> Self {
        // One that can't be watched (no memory) is closed, so the program gets to know it.
        let pipe = pipe.filter(|pipe| poller.watch_bulk(pipe, token).is_ok());
        Self { pipe, room: most.unwrap_or(u64::MAX), left: u64::MAX, dropped: 0 }
    }

    /// Bytes that were read and not passed on.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// What there is, a chunk at most, as far as there is room for it; `None` where there is nothing now.
    fn read<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let bytes = self.read_all(buffer)?;
        let length = bytes.len() as u64;
        let passed = self.room.min(length);
        self.room -= passed;
        self.dropped += length - passed;
        Some(&bytes[..usize::try_from(passed).unwrap_or(bytes.len())])
    }

    fn read_all<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        loop {
            match self.pipe.as_mut()?.read(&mut buffer[..most]) {
                Ok(count) if count > 0 => {
                    self.left -= count as u64;
                    if self.left == 0 {
                        self.pipe = None;
                    }
                    return Some(&buffer[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => self.pipe = None,
            }
        }
    }

    /// Only what is in it now is still read; then it is closed, whatever those who hold its other end go on to write.
    fn read_only_what_is_there(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        self.left = sys::waiting_in(pipe).unwrap_or_default();
        if self.left == 0 {
            self.pipe = None;
        }
    }

    /// Closes it where it is empty, though a process that isn't ours may hold its other end.
    fn close_if_empty(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        let holds_data = poll(&mut fds, PollTimeout::ZERO).is_ok()
            && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
        if !holds_data {
            self.pipe = None;
        }
    }
}

impl Run {
    /// One of its pipes has something to read.
    pub fn on_output(&mut self, part: Part, outbox: &mut Outbox) {
        let mut buffer = [0; CHUNK];
        let index = usize::from(part == Part::Stderr);
        if let Some(bytes) = self.outputs[index].read(&mut buffer) {
            match &self.owner {
                Owner::Request(_) if bytes.is_empty() => {}
                Owner::Request(id) => {
                    let monotonic_ns = clock::monotonic_ns();
                    let event = match index {
                        0 => Event::Stdout { monotonic_ns },
                        _ => Event::Stderr { monotonic_ns },
                    };
                    outbox.push(*id, &event, bytes);
                }
                owner @ (Owner::Tool { .. } | Owner::Step(_)) => {
                    let most = if matches!(owner, Owner::Step(_)) { STEP_CAPTURE } else { CAPTURE };
                    let kept = &mut self.captured[index];
                    let room = most.saturating_sub(kept.len()).min(bytes.len());
                    kept.extend_from_slice(&bytes[..room]);
                }
            }
        }
        if self.stage == Stage::Draining && self.keeps == Survivors::Kill {
            self.outputs[index].close_if_empty();
        }
    }

    /// All its processes are dead, or are kept: only what is in the pipes is still to come.
    pub(super) fn drain(&mut self) {
        self.stage = Stage::Draining;
        self.outputs.iter_mut().for_each(match self.keeps {
            Survivors::Kill => OutputPipe::close_if_empty,
            Survivors::Keep => OutputPipe::read_only_what_is_there, // survivors may go on for ever
        });
    }
}
