//! A segment of TCP, and the records that stand for one where there is no packet: of what tcpdump printed.

use std::io::Read;
use std::net::IpAddr;

use serde::Serialize;

use super::fault::Fault;
use super::input::Input;

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
