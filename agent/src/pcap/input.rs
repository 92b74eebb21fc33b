//! Bytes as they are needed: as many at a time as a record has, whatever pieces they come in.

use super::fault::Fault;
use serde::Serialize;
use std::io;
use std::io::Read;
use std::net::IpAddr;

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

// A segment of TCP, and the records that stand for one where there is no packet: of what tcpdump printed.

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// A machine: by its address, or by the number that whoever wrote the records gave to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Host {
    Address(IpAddr),
    Number(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Endpoint {
    pub host: Host,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// In ns.
    pub time: i64,
    pub from: Endpoint,
    pub to: Endpoint,
    /// None where it is not known.
    pub sequence: Option<u32>,
    pub acknowledged: u32,
    /// Bytes of data, by the headers.
    pub length: u32,
    pub flags: u8,
    pub window: u16,
    /// Of the option, else 0.
    pub mss: u16,
    pub stamped: bool,
    pub sacks: u8,
    /// Whether the first of them says again what was acknowledged.
    pub dsack: bool,
}

impl Segment {
    pub fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

pub const MAGIC: &[u8] = b"storlab-segments";
/// Of a record, in bytes. Numbers have their least byte first.
const RECORD: usize = 44;

/// Gives all segments to `sink`. Whether the last record is cut off.
pub fn read<R: Read>(input: &mut Input<R>, mut sink: impl FnMut(Segment)) -> Result<bool, Fault> {
    input.take(MAGIC.len());
    while let Some(record) = input.peek(RECORD)? {
        if let Some(record) = record.first_chunk() {
            sink(decode(record));
        }
        input.take(RECORD);
    }
    Ok(input.has_more()?)
}

fn decode(record: &[u8; RECORD]) -> Segment {
    let short = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
    let wide = |at: usize| u32::from(short(at)) | u32::from(short(at + 2)) << 16;
    let signed = |at: usize| (u64::from(wide(at)) | u64::from(wide(at + 4)) << 32) as i64;
    let end = |host: usize, port: usize| Endpoint { host: Host::Number(wide(host)), port: short(port) };
    Segment {
        time: signed(0).clamp(-(1 << 62), 1 << 62),
        from: end(16, 32),
        to: end(20, 34),
        sequence: u32::try_from(signed(8)).ok(),
        acknowledged: wide(24),
        length: wide(28),
        flags: record[40],
        window: short(36),
        mss: short(38),
        stamped: record[41] != 0,
        sacks: record[42],
        dsack: record[43] != 0,
    }
}
