//! Bytes as they are needed: as many at a time as a record has, whatever pieces they come in.

use std::io::{self, Read};

const PIECE: usize = 256 * 1024; // bytes: they stay in a processor's cache until they are looked at

/// What was read, and not taken yet.
pub struct Input<R> {
    reader: R,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    at: u64,
}

impl<R: Read> Input<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, buffer: vec![0; PIECE], begin: 0, end: 0, at: 0 }
    }

    /// Bytes that were taken.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next `count` bytes, which stay; none where there are fewer. The caller bounds `count`.
    pub fn peek(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
        if self.end - self.begin < count && !self.fill(count)? {
            return Ok(None);
        }
        Ok(self.buffer.get(self.begin..self.begin + count))
    }

    /// Passes over bytes that were seen.
    pub fn take(&mut self, count: usize) {
        self.begin += count;
        self.at += count as u64;
    }

    /// Whether there are bytes that were not taken.
    pub fn has_more(&mut self) -> io::Result<bool> {
        Ok(self.peek(1)?.is_some())
    }

    fn fill(&mut self, count: usize) -> io::Result<bool> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        if self.buffer.len() < count {
            self.buffer.resize(count, 0);
        }
        while self.end < count {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
