//! The files that captures come in: pcap and pcapng.
//!
//! Sources: `pcap-savefile(5)`; the draft "PCAP Next Generation Capture File Format" of the IETF's opsawg.

use std::io::Read;

use serde::Serialize;

use super::fault::Fault;
use super::input::Input;

const LONGEST: u32 = 1 << 20; // bytes of a packet: no card gives more, with or without merging
const AROUND: u32 = 4096; // bytes of a block, beside its packet
const INTERFACES: usize = 4096; // of one section
const FAR: i128 = 1 << 62; // ns: times beyond are none

/// The first bytes of pcap, whether numbers have their least byte first, and ns of a unit of time.
const MAGICS: [([u8; 4], bool, i64); 4] = [
    ([0xa1, 0xb2, 0xc3, 0xd4], false, 1000),
    ([0xd4, 0xc3, 0xb2, 0xa1], true, 1000),
    ([0xa1, 0xb2, 0x3c, 0x4d], false, 1),
    ([0x4d, 0x3c, 0xb2, 0xa1], true, 1),
];
/// The first bytes of pcapng, and of each of its sections.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;
const TSRESOL: u16 = 9;
const TSOFFSET: u16 = 14;

/// A packet: the bytes that were captured, and how many it had.
pub struct Packet<'a> {
    pub linktype: u16,
    pub data: &'a [u8],
    pub length: u32,
    /// In ns since the epoch.
    pub time: i64,
}

#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Notes {
    #[serde(skip)]
    pub cut_off: bool,
    pub without_time: u64,
}

/// Gives all packets of a pcap or pcapng to `sink`, in order.
pub fn read<R: Read>(
    input: &mut Input<R>,
    sink: impl FnMut(&Packet) -> Result<(), Fault>,
) -> Result<Notes, Fault> {
    let head = input.peek(4)?.map_or([0; 4], |head| [head[0], head[1], head[2], head[3]]);
    let mut notes = if head == SECTION {
        Pcapng { order: Order { little: true }, interfaces: vec![], notes: Notes::default(), sink }
            .read(input)?
    } else {
        let (_, little, unit) =
            MAGICS.into_iter().find(|(magic, ..)| head == *magic).ok_or(Fault::Unknown)?;
        pcap(input, Order { little }, unit, sink)?
    };
    notes.cut_off = input.has_more()?;
    Ok(notes)
}

fn pcap<R: Read>(
    input: &mut Input<R>,
    order: Order,
    unit: i64,
    mut sink: impl FnMut(&Packet) -> Result<(), Fault>,
) -> Result<Notes, Fault> {
    let head = input.peek(24)?.ok_or(Fault::Header)?;
    let linktype = (order.wide(head, 20) & 0xffff) as u16; // the rest is on checksums
    input.take(24);
    while let Some(head) = input.peek(16)? {
        let (seconds, part) = (order.wide(head, 0), order.wide(head, 4));
        let (captured, length) = (order.wide(head, 8), order.wide(head, 12));
        if captured > LONGEST {
            return Err(Fault::Packet { at: input.at(), length: captured });
        }
        let size = 16 + captured as usize;
        let Some(record) = input.peek(size)? else { break };
        let time = i64::from(seconds) * 1_000_000_000 + i64::from(part) * unit;
        sink(&Packet { linktype, data: &record[16..], length, time })?;
        input.take(size);
    }
    Ok(Notes::default())
}

/// The order of bytes in numbers.
#[derive(Clone, Copy)]
struct Order {
    little: bool,
}

impl Order {
    /// A number of 32 bits; 0 where `data` ends before.
    fn wide(self, data: &[u8], at: usize) -> u32 {
        let octets = data.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        if self.little { u32::from_le_bytes(octets) } else { u32::from_be_bytes(octets) }
    }

    /// Of 16 bits, likewise.
    fn short(self, data: &[u8], at: usize) -> u16 {
        let octets = data.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        if self.little { u16::from_le_bytes(octets) } else { u16::from_be_bytes(octets) }
    }
}

struct Interface {
    linktype: u16,
    snaplen: u32,
    per_second: i128,
    offset: i64, // s
}

/// Sections, each in an order of bytes of its own, of interfaces and packets. Other blocks are skipped.
struct Pcapng<S> {
    order: Order,
    interfaces: Vec<Interface>,
    notes: Notes,
    sink: S,
}

impl<S: FnMut(&Packet) -> Result<(), Fault>> Pcapng<S> {
    fn read<R: Read>(mut self, input: &mut Input<R>) -> Result<Notes, Fault> {
        loop {
            let at = input.at();
            let Some(head) = input.peek(12)? else { break };
            if head[..4] == SECTION {
                self.order = match head[8..12] {
                    [0x1a, 0x2b, 0x3c, 0x4d] => Order { little: false },
                    [0x4d, 0x3c, 0x2b, 0x1a] => Order { little: true },
                    _ => return Err(Fault::Order(at)),
                };
            }
            let length = self.order.wide(head, 4);
            if length < 12 || !length.is_multiple_of(4) || length > LONGEST + AROUND {
                return Err(Fault::Block { at, length });
            }
            let Some(block) = input.peek(length as usize)? else { break };
            self.block(block)?;
            input.take(length as usize);
        }
        Ok(self.notes)
    }

    fn block(&mut self, block: &[u8]) -> Result<(), Fault> {
        let (order, size) = (self.order, block.len());
        let numbers = |at: usize| (order.wide(block, at), order.wide(block, at + 4));
        if block[..4] == SECTION {
            self.interfaces.clear();
            return Ok(());
        }
        match order.wide(block, 0) {
            INTERFACE if size >= 20 => self.interface(block),
            kind @ (ENHANCED | OLD_PACKET) if size >= 32 => {
                let number =
                    if kind == ENHANCED { order.wide(block, 8) } else { order.short(block, 8).into() };
                let ((high, low), (captured, length)) = (numbers(12), numbers(20));
                let ticks = u64::from(high) << 32 | u64::from(low);
                self.packet(number, &block[28..size - 4], captured, length, Some(ticks))
            }
            SIMPLE if size >= 16 => {
                let Some(first) = self.interfaces.first() else { return Ok(()) };
                let length = order.wide(block, 8);
                let captured = if first.snaplen == 0 { length } else { length.min(first.snaplen) };
                self.notes.without_time += 1;
                self.packet(0, &block[12..size - 4], captured, length, None)
            }
            _ => Ok(()),
        }
    }

    fn packet(
        &mut self,
        number: u32,
        room: &[u8],
        captured: u32,
        length: u32,
        ticks: Option<u64>,
    ) -> Result<(), Fault> {
        let interface = self.interfaces.get(number as usize).ok_or(Fault::Interface(number))?;
        let data = room.get(..captured as usize).ok_or(Fault::Short(captured))?;
        let time = ticks.map_or(0, |ticks| {
            i128::from(ticks) * 1_000_000_000 / interface.per_second
                + i128::from(interface.offset) * 1_000_000_000
        });
        let time = if time.abs() < FAR { time as i64 } else { 0 };
        (self.sink)(&Packet { linktype: interface.linktype, data, length, time })
    }

    fn interface(&mut self, block: &[u8]) -> Result<(), Fault> {
        if self.interfaces.len() >= INTERFACES {
            return Err(Fault::Interfaces(INTERFACES));
        }
        let (order, end) = (self.order, block.len() - 4);
        let (mut per_second, mut offset) = (1_000_000, 0);
        let mut at = 16;
        while at + 4 <= end {
            let (code, length) = (order.short(block, at), usize::from(order.short(block, at + 2)));
            let value = &block[at + 4..end.min(at + 4 + length)];
            match (code, value) {
                (0, _) => break,
                (TSRESOL, &[exponent]) if exponent & 0x80 != 0 => per_second = 1 << (exponent & 0x7f).min(62),
                (TSRESOL, &[exponent]) => per_second = 10_i128.pow(u32::from(exponent).min(18)),
                (TSOFFSET, &[a, b, c, d, e, f, g, h]) => {
                    let octets = [a, b, c, d, e, f, g, h];
                    offset =
                        if order.little { i64::from_le_bytes(octets) } else { i64::from_be_bytes(octets) };
                }
                _ => {}
            }
            at += 4 + length.next_multiple_of(4);
        }
        self.interfaces.push(Interface {
            linktype: order.short(block, 8),
            snaplen: order.wide(block, 12),
            per_second,
            offset,
        });
        Ok(())
    }
}
