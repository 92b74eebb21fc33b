//! What waits to go out to the controller.
//!
//! Its size decides who may go on: while more than [`ROOM`] waits, nobody reads children's output or files, and
//! while more than [`OVERFULL`] waits, no request is read either. So memory stays bounded, however slow the
//! controller, and time-outs and kills, which write next to nothing, are never held up.

use std::io::{self, Write};

use crate::protocol::{Event, encode_event};

/// Up to this much, in bytes, more output is taken in.
pub const ROOM: usize = 256 * 1024;
/// Beyond this much, in bytes, no more requests are taken in.
pub const OVERFULL: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub struct Outbox {
    buffer: Vec<u8>,
    sent: usize,
}

impl Outbox {
    /// Queues bytes that are no frame: the preface.
    pub fn push_raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    pub fn push(&mut self, id: u64, event: &Event, payload: &[u8]) {
        if self.sent > ROOM / 2 {
            self.buffer.drain(..self.sent);
            self.sent = 0;
        }
        encode_event(&mut self.buffer, id, event, payload);
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.buffer.len() - self.sent
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn has_room(&self) -> bool {
        self.len() < ROOM
    }

    pub fn is_overfull(&self) -> bool {
        self.len() > OVERFULL
    }

    /// Writes as much as `stream` takes without blocking.
    pub fn flush(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while !self.is_empty() {
            match stream.write(&self.buffer[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        self.buffer.clear();
        self.buffer.shrink_to(2 * ROOM);
        Ok(())
    }
}
