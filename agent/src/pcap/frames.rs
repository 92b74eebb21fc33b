//! Packets as segments of TCP: the headers of links, IP and TCP.
//!
//! Sources: the registry of link types at tcpdump.org; RFC 791, 8200, 9293.

use super::container::Packet;
use super::fault::Fault;
use super::input::{Endpoint, Host, Segment};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const TAGS_MOST: usize = 2;
const TCP: u8 = 6;
const FRAGMENT: u8 = 44;
const EXTENSIONS_MOST: usize = 8;

/// Turns packets into segments, and counts those that it can't.
#[derive(Debug, Default, Serialize)]
pub struct Frames {
    pub packets: u64,
    pub others: u64,
    /// Captured without all of their headers.
    pub cut: u64,
    /// Captured without all of TCP's options.
    pub without_options: u64,
}

enum Not {
    Tcp,
    Whole,
}

/// What IP carries: where it begins, how long it was, whose it is and whose it will be.
struct Carried {
    at: usize,
    size: usize,
    from: IpAddr,
    to: IpAddr,
}

impl Frames {
    /// The segment that a packet is, if it is one. Fails for a type of link that isn't known.
    pub fn segment(&mut self, packet: &Packet) -> Result<Option<Segment>, Fault> {
        self.packets += 1;
        let segment = match link(packet)? {
            Some(at) => internet(packet, at).and_then(|carried| self.transport(packet, &carried)),
            None => Err(Not::Tcp),
        };
        match segment {
            Ok(segment) => return Ok(Some(segment)),
            Err(Not::Tcp) => self.others += 1,
            Err(Not::Whole) => self.cut += 1,
        }
        Ok(None)
    }

    fn transport(&mut self, packet: &Packet, carried: &Carried) -> Result<Segment, Not> {
        let head: &[u8; 20] = chunk(packet.data, carried.at).ok_or(Not::Whole)?;
        let header = usize::from(head[12] >> 4) * 4;
        if header < 20 || carried.size < header {
            return Err(Not::Tcp);
        }
        let wide = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let acknowledged = wide(8);
        let options = match packet.data.get(carried.at + 20..carried.at + header) {
            Some(text) => Options::read(text, acknowledged),
            None => {
                self.without_options += 1;
                Options::default()
            }
        };
        Ok(Segment {
            time: packet.time,
            from: Endpoint { host: Host::Address(carried.from), port: short(0) },
            to: Endpoint { host: Host::Address(carried.to), port: short(2) },
            sequence: Some(wide(4)),
            acknowledged,
            length: u32::try_from(carried.size - header).unwrap_or(u32::MAX),
            flags: head[13],
            window: short(14),
            mss: options.mss,
            stamped: options.stamped,
            sacks: options.sacks,
            dsack: options.dsack,
        })
    }
}

fn chunk<const SIZE: usize>(data: &[u8], at: usize) -> Option<&[u8; SIZE]> {
    data.get(at..)?.first_chunk()
}

fn short(data: &[u8], at: usize) -> Option<u16> {
    chunk(data, at).copied().map(u16::from_be_bytes)
}

/// Where the header of IP begins, if there is one.
fn link(packet: &Packet) -> Result<Option<usize>, Fault> {
    let of_ip = |kind: Option<u16>, at: usize| matches!(kind, Some(IPV4 | IPV6)).then_some(at);
    Ok(match packet.linktype {
        0 | 108 => Some(4), // null and loopback: they say the family of addresses, as IP does
        12 | 14 | 101 | 228 | 229 => Some(0),
        113 => of_ip(short(packet.data, 14), 16),
        276 => of_ip(short(packet.data, 0), 20),
        1 => {
            let mut at = 12;
            for _ in 0..TAGS_MOST {
                if short(packet.data, at).is_some_and(|kind| TAGS.contains(&kind)) {
                    at += 4;
                }
            }
            of_ip(short(packet.data, at), at + 2)
        }
        other => return Err(Fault::Link(other)),
    })
}

fn internet(packet: &Packet, at: usize) -> Result<Carried, Not> {
    let head: &[u8; 20] = chunk(packet.data, at).ok_or(Not::Whole)?;
    let rest = (packet.length as usize).saturating_sub(at);
    match head[0] >> 4 {
        4 => internet_4(head, at, rest),
        6 => internet_6(packet.data, at, rest),
        _ => Err(Not::Tcp),
    }
}

fn internet_4(head: &[u8; 20], at: usize, rest: usize) -> Result<Carried, Not> {
    let header = usize::from(head[0] & 0x0f) * 4;
    let first = u16::from_be_bytes([head[6], head[7]]) & 0x1fff == 0;
    if header < 20 || !first || head[9] != TCP {
        return Err(Not::Tcp);
    }
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    // 0: segments that were merged to more than 64 KiB, or that the card is still to cut up.
    let size = if total == 0 { rest } else { total };
    Ok(Carried {
        at: at + header,
        size: size.checked_sub(header).ok_or(Not::Tcp)?,
        from: Ipv4Addr::new(head[12], head[13], head[14], head[15]).into(),
        to: Ipv4Addr::new(head[16], head[17], head[18], head[19]).into(),
    })
}

fn internet_6(data: &[u8], at: usize, rest: usize) -> Result<Carried, Not> {
    let head: &[u8; 40] = chunk(data, at).ok_or(Not::Whole)?;
    let address = |begin: usize| {
        let octets: [u8; 16] = chunk(head, begin).copied().unwrap_or_default();
        IpAddr::from(Ipv6Addr::from(octets))
    };
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let lead = extensions(data, at, head[6]).ok_or(Not::Tcp)?;
    let size = if length == 0 { rest } else { length + 40 };
    Ok(Carried {
        at: at + lead,
        size: size.checked_sub(lead).ok_or(Not::Tcp)?,
        from: address(8),
        to: address(24),
    })
}

/// Bytes up to TCP, if that is what comes after all extensions.
fn extensions(data: &[u8], at: usize, mut kind: u8) -> Option<usize> {
    let mut lead = 40;
    for _ in 0..EXTENSIONS_MOST {
        let length = match kind {
            0 | 43 | 60 => None, // hop by hop, routing, destination
            FRAGMENT => Some(8),
            _ => break,
        };
        let head: &[u8; 8] = chunk(data, at + lead)?;
        if kind == FRAGMENT && u16::from_be_bytes([head[2], head[3]]) & 0xfff8 != 0 {
            return None; // a later one
        }
        lead += length.unwrap_or((usize::from(head[1]) + 1) * 8);
        kind = head[0];
    }
    (kind == TCP).then_some(lead)
}

// The options of TCP's header that say something about what it does.
//
// Sources: RFC 9293 (MSS), 7323 (timestamps), 2018 (SACK), 2883 (DSACK).

const STAMPS: [u8; 4] = [1, 1, 8, 10]; // two blanks and timestamps, as nearly every segment of Linux begins its options

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// 0 where it is not said.
    pub mss: u16,
    pub stamped: bool,
    pub sacks: u8,
    pub dsack: bool,
}

impl Options {
    /// Those in `text`, of a segment that acknowledges `acknowledged`. What follows one that is damaged is left out.
    pub fn read(mut text: &[u8], acknowledged: u32) -> Self {
        let mut found = Self::default();
        if text.len() == 12 && text.starts_with(&STAMPS) {
            found.stamped = true;
            return found;
        }
        while let [kind, rest @ ..] = text {
            if *kind == 1 {
                text = rest;
                continue;
            }
            let (0x02.., Some(&length)) = (*kind, rest.first()) else { break };
            let Some(value) = text.get(2..usize::from(length)) else { break };
            match (*kind, value) {
                (2, [high, low, ..]) => found.mss = u16::from_be_bytes([*high, *low]),
                (8, [_, _, _, _, _, _, _, _, ..]) => found.stamped = true,
                (5, [_, _, _, _, _, _, _, _, ..]) => {
                    found.sacks = (value.len() / 8) as u8; // of 38 bytes at most
                    found.dsack = is_duplicate(value, acknowledged);
                }
                _ => {}
            }
            text = &text[usize::from(length)..];
        }
        found
    }
}

/// Whether the first block is below what is acknowledged, or within the second.
fn is_duplicate(blocks: &[u8], acknowledged: u32) -> bool {
    let edge = |at: usize| {
        let octets: Option<&[u8; 4]> = blocks.get(at..).and_then(|rest| rest.first_chunk());
        octets.copied().map(u32::from_be_bytes)
    };
    let reaches = |from: u32, to: u32| to.wrapping_sub(from) < 1 << 31;
    let (Some(left), Some(right)) = (edge(0), edge(4)) else { return false };
    let within = |(outer, end): (u32, u32)| reaches(outer, left) && reaches(right, end);
    reaches(right, acknowledged) || edge(8).zip(edge(12)).is_some_and(within)
}
