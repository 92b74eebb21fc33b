//! The eBPF programs that catch connections as they open and close: loaded, attached, and what they leave.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use aya::maps::{Array, MapData, RingBuf};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, VerifierLogLevel, include_bytes_aligned};

use super::diag::{Connection, Info, field};
use crate::trace::btf;
use crate::trace::programs::{Failure, allow_files, loader_without_types};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tcp.o"));

const PROGRAMS: [&str; 2] = ["tcp_destroy_sock", "inet_sock_set_state"];
const NAMESPACE: &str = "/proc/self/ns/net";

const OPENED: u32 = 0;
const LOST: u32 = 1;

pub struct Attached {
    _ebpf: Ebpf, // its programs are attached for as long as it lives
    closed: RingBuf<MapData>,
    counted: Array<MapData, u64>,
}

impl Attached {
    /// Loads and attaches them for the network namespace of this process, or says in a sentence why that can't be.
    pub fn new(types: &Btf) -> Result<Self, String> {
        attach(types).map_err(|why| why.to_string())
    }

    pub fn opened(&self) -> u64 {
        self.counted.get(&OPENED, 0).unwrap_or_default()
    }

    /// How many have closed whose counts found no room.
    pub fn lost(&self) -> u64 {
        self.counted.get(&LOST, 0).unwrap_or_default()
    }

    /// Connections that have closed since the last call, and when.
    pub fn closed(&mut self) -> Vec<(u64, Connection)> {
        let mut found = vec![];
        while let Some(item) = self.closed.next() {
            found.extend(parse(&item));
        }
        found
    }
}

/// What loading programs takes: the kernel's types, and leave to open files. Or a sentence on why that can't be had.
pub fn types() -> Result<Btf, String> {
    allow_files().map_err(|why| why.to_string())?;
    btf::of_kernel(Path::new(btf::KERNEL), &btf::TCP).map_err(|error| Failure::of(&error).to_string())
}

/// The number of the network namespace of this process.
pub fn namespace() -> Result<u32, Failure> {
    Ok(fs::metadata(NAMESPACE).map_err(|error| Failure::of(&error))?.ino() as u32)
}

fn attach(types: &Btf) -> Result<Attached, Failure> {
    let namespace = namespace()?;
    let mut loader = loader_without_types();
    loader.btf(Some(types));
    loader.verifier_log_level(VerifierLogLevel::DISABLE); // writing it takes most of the time that loading takes
    loader.set_global("namespace", &namespace, true);
    let mut ebpf = loader.load(OBJECT)?;
    attach_each(&mut ebpf, &PROGRAMS, types)?;
    let closed = RingBuf::try_from(taken(&mut ebpf, "CLOSED")?).map_err(|error| Failure::of(&error))?;
    let counted = Array::try_from(taken(&mut ebpf, "COUNTED")?).map_err(|error| Failure::of(&error))?;
    Ok(Attached { _ebpf: ebpf, closed, counted })
}

/// Attaches programs to the tracepoints that they are named after.
pub fn attach_each(ebpf: &mut Ebpf, names: &[&str], types: &Btf) -> Result<(), Failure> {
    for name in names {
        let missing = || Failure::OfKernel(format!("the object has no program {name}"));
        let program: &mut BtfTracePoint = ebpf.program_mut(name).ok_or_else(missing)?.try_into()?;
        program.load(name, types).map_err(|error| of_tracepoint(name, Failure::of(&error)))?;
        program.attach()?;
    }
    Ok(())
}

fn of_tracepoint(name: &str, why: Failure) -> Failure {
    match why {
        Failure::OfKernel(why) => Failure::OfKernel(format!("{name}: {why}")),
        why => why,
    }
}

/// A map of programs that have been loaded.
pub fn taken(ebpf: &mut Ebpf, name: &str) -> Result<aya::maps::Map, Failure> {
    ebpf.take_map(name).ok_or_else(|| Failure::OfKernel(format!("the object has no map {name}")))
}

/// `struct closed` of `bpf/tcp.bpf.c`.
fn parse(bytes: &[u8]) -> Option<(u64, Connection)> {
    let long = |at| field(bytes, at).map(u64::from_ne_bytes);
    let word = |at| field(bytes, at).map(u32::from_ne_bytes);
    let address = |at: usize| -> Option<IpAddr> {
        match i32::from(u16::from_ne_bytes(field(bytes, 88)?)) {
            libc::AF_INET => Some(IpAddr::from(field::<4>(bytes, at)?)),
            libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(field::<16>(bytes, at)?)).to_canonical()),
            _ => None,
        }
    };
    let info = Info {
        bytes_sent: long(16)?,
        bytes_retrans: long(24)?,
        bytes_acked: long(32)?,
        bytes_received: long(40)?,
        segs_out: word(48)?,
        segs_in: word(52)?,
        data_segs_out: word(56)?,
        data_segs_in: word(60)?,
        total_retrans: word(64)?,
        dsack_dups: word(68)?,
        reord_seen: word(72)?,
        rcv_ooopack: word(76)?,
        delivered: word(80)?,
        snd_mss: word(84)?,
        ..Info::default()
    };
    let connection = Connection {
        cookie: long(8)?,
        local: (address(96)?, u16::from_be_bytes(field(bytes, 90)?)),
        remote: (address(112)?, u16::from_be_bytes(field(bytes, 92)?)),
        state: CLOSE,
        queued: (0, 0),
        congestion: String::new(),
        info,
        name: None,
    };
    Some((long(0)?, connection))
}

/// The kernel's `TCP_CLOSE`.
const CLOSE: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_none() {
        let mut whole = vec![0; 128];
        whole[88..90].copy_from_slice(&2_u16.to_ne_bytes());
        whole[92..94].copy_from_slice(&10809_u16.to_be_bytes());
        whole[96..100].copy_from_slice(&[10, 0, 0, 1]);
        let (_, connection) = parse(&whole).unwrap();
        assert_eq!((connection.local.0.to_string(), connection.remote.1), ("10.0.0.1".into(), 10809));
        assert_eq!(parse(&whole[..115]), None);
        assert_eq!(parse(&[0; 128]), None);
    }
}
