//! Single events out of the ring buffer. The layout is that of `struct event` in `bpf/subject.h`.

use std::io::{self, Write};

use aya::maps::{MapData, RingBuf};

use super::counters::comm_text;
use super::disks::Names;
use super::names;
use super::output::Event;

/// Writes all events that are there, a line each, and tells how many.
pub fn drain(ring: &mut RingBuf<MapData>, disks: &mut Names, out: &mut impl Write) -> io::Result<u64> {
    let mut count = 0;
    while let Some(item) = ring.next() {
        if let Some(event) = Raw::parse(&item) {
            let disk = disks.of(event.device);
            let comm = comm_text(&event.comm);
            let operation = names::operation(u32::from(event.operation));
            let flags = names::flags(u32::from(event.flags));
            let line: Event =
                (&disk, operation, flags, event.length, event.sector, event.pid, &comm, event.time);
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
            count += 1;
        }
    }
    Ok(count)
}

#[derive(Debug, PartialEq, Eq)]
struct Raw {
    time: u64,
    sector: u64,
    device: u32,
    length: u32,
    pid: u32,
    operation: u16,
    flags: u16,
    comm: [u8; 16],
}

impl Raw {
    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            time: u64::from_ne_bytes(field(bytes, 0)?),
            sector: u64::from_ne_bytes(field(bytes, 8)?),
            device: u32::from_ne_bytes(field(bytes, 16)?),
            length: u32::from_ne_bytes(field(bytes, 20)?),
            pid: u32::from_ne_bytes(field(bytes, 24)?),
            operation: u16::from_ne_bytes(field(bytes, 28)?),
            flags: u16::from_ne_bytes(field(bytes, 30)?),
            comm: field(bytes, 32)?,
        })
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_was_cut_off_is_none() {
        assert_eq!(Raw::parse(&[0; 47]), None);
        assert!(Raw::parse(&[0; 48]).is_some());
    }
}
