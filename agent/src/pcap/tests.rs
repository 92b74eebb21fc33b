//! Whatever the bytes, and whatever pieces they come in.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use serde_json::Value;

use super::direction::Limits;
use super::fault::Fault;
use super::input::{ACK, Endpoint, Host, MAGIC, SYN, Segment};
use super::kept::Holes;
use super::read;
use super::streams::Streams;

/// Gives `size` bytes at a time, as a pipe may.
struct Pieces<'a> {
    left: &'a [u8],
    size: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.size.min(buffer.len()).min(self.left.len());
        let (now, later) = self.left.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.left = later;
        Ok(count)
    }
}

fn document(data: &[u8], size: usize) -> Result<Value, Fault> {
    read(Pieces { left: data, size }).map(|document| serde_json::to_value(document).unwrap())
}

/// A frame of Ethernet with `length` bytes of data, of which none was captured.
fn frame(from_server: bool, sequence: u32, acknowledged: u32, length: u16) -> Vec<u8> {
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (source, target) = if from_server { (server, client) } else { (client, server) };
    let ports: [u16; 2] = if from_server { [2049, 700] } else { [700, 2049] };
    let mut out = vec![0; 12];
    out.extend([8, 0, 0x45, 0]);
    out.extend((40 + length).to_be_bytes());
    out.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    out.extend(source.into_iter().chain(target));
    out.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    out.extend(sequence.to_be_bytes().into_iter().chain(acknowledged.to_be_bytes()));
    out.extend([5 << 4, ACK, 1, 0, 0, 0, 0, 0]);
    out
}

fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0];
    for (at, frame) in frames.iter().enumerate() {
        for number in [1, at as u32 * 1000, frame.len() as u32, 1514] {
            out.extend(number.to_le_bytes());
        }
        out.extend(frame);
    }
    out
}

fn reads() -> Vec<u8> {
    let turn = |at: u32| {
        let begin = 1000 + at * 2896;
        [frame(true, begin, 1, 1448), frame(true, begin + 1448, 1, 1448), frame(false, 1, begin + 2896, 0)]
    };
    pcap(&(0..20).flat_map(turn).collect::<Vec<_>>())
}

#[test]
fn a_capture_says_the_same_in_pieces_of_any_size() {
    let whole = document(&reads(), usize::MAX).unwrap();
    let server = &whole["connections"][0]["ways"][0];
    assert_eq!((&server["segments"], &server["missing"]), (&40.into(), &0.into()));
    assert_eq!(server["lengths"]["1448"], 40);
    assert_eq!((&server["rtt_count"], &server["rtt_sum"]), (&19.into(), &19_000.into()));
    for size in [1, 2, 7, 4096] {
        assert_eq!(document(&reads(), size).unwrap(), whole);
    }
}

#[test]
fn more_holes_than_are_remembered_are_still_counted() {
    let mut holes = Holes::default();
    for at in 0..100 {
        holes.open(at * 10, at * 10 + 5, 0, 16);
    }
    assert_eq!(holes.missing(), 500);
    assert!(!holes.fill(990, 992, 1 << 40, 16)); // long after
    assert_eq!(holes.missing(), 498);
    holes.fill(0, 100, 0, 16); // what was given up stays one
    assert_eq!(holes.missing(), 498);
}

#[test]
fn a_hole_that_is_filled_bit_by_bit_takes_no_memory_without_end() {
    let mut holes = Holes::default();
    holes.open(0, 1_000_000, 0, 16);
    for at in 0..10_000 {
        holes.fill(at * 10, at * 10 + 1, 0, 16);
    }
    assert!(format!("{holes:?}").len() < 16 * 100);
}

#[test]
fn connections_beyond_the_most_are_left_out_and_counted() {
    let end = |number: u32, port| Endpoint { host: Host::Address(IpAddr::V4(Ipv4Addr::from(number))), port };
    let mut streams = Streams::default();
    for number in 0..100_010 {
        streams.add(&Segment {
            time: 1,
            from: end(number, 1),
            to: end(u32::MAX, 2),
            sequence: Some(1),
            acknowledged: 0,
            length: 10,
            flags: SYN,
            window: 5,
            mss: 0,
            stamped: false,
            sacks: 0,
            dsack: false,
        });
    }
    let (connections, left_out) = streams.finish();
    assert_eq!((connections.len(), left_out), (100_000, 10));
}

#[test]
fn the_more_connections_there_are_the_less_each_may_take() {
    assert_eq!(Limits::of(1).counts, 4096);
    assert_eq!((Limits::of(100_000).holes, Limits::of(100_000).counts), (16, 32));
}

#[test]
fn a_record_that_is_cut_off_is_noted() {
    let mut records = MAGIC.to_vec();
    records.extend([0; 44 + 43]);
    let found = document(&records, 5).unwrap();
    assert_eq!((&found["cut_off"], found["connections"].as_array().unwrap().len()), (&true.into(), 1));
}

/// The head of each kind of file, so that what follows is looked at.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    let section = [10, 13, 13, 10, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
    let interface = [1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0];
    let rest = [255, 255, 255, 255, 255, 255, 255, 255, 28, 0, 0, 0];
    prop_oneof![
        Just(pcap(&[])),
        Just(MAGIC.to_vec()),
        Just([section.as_slice(), &rest, &interface].concat()),
        Just(vec![]),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        head in heads(), data in prop::collection::vec(any::<u8>(), 0..300), size in 1_usize..50,
    ) {
        let _ = document(&[head, data.clone()].concat(), size);
        let _ = document(&pcap(&[data]), size);
    }

    #[test]
    fn a_damaged_capture_is_read_or_refused(at in 0_usize..2000, value in any::<u8>(), cut in 0_usize..4000) {
        let mut data = reads();
        let length = data.len();
        data[at % length] = value;
        data.truncate(length - cut % length);
        let _ = document(&data, usize::MAX);
    }

    #[test]
    fn holes_are_what_no_segment_covers(segments in prop::collection::vec((0_i64..60, 1_i64..20), 0..30)) {
        let (mut holes, mut newest, mut covered) = (Holes::default(), 0, [false; 100]);
        for (begin, length) in segments {
            if begin > newest {
                holes.open(newest, begin, 0, 1024);
            } else if begin < newest {
                holes.fill(begin, begin + length, 1 << 40, 1024);
            }
            covered[begin as usize..(begin + length) as usize].fill(true);
            newest = newest.max(begin + length);
        }
        let missing = covered[..newest as usize].iter().filter(|covered| !**covered).count();
        prop_assert_eq!(holes.missing(), missing as u64);
    }
}
