//! How many bytes pure ACKs acknowledge, and how long after each other they come, counted in bins by eBPF programs
//! (`agent/bpf/acks.bpf.c`).

use std::net::{IpAddr, Ipv6Addr};

use aya::maps::{MapData, PerCpuArray};
use aya::{Btf, Ebpf, VerifierLogLevel, include_bytes_aligned};

use super::options::{Endpoint, MAX_EACH};
use super::programs::{attach_each, namespace, taken};
use crate::trace::counters::bounds;
use crate::trace::programs::{Failure, loader_without_types};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/acks.o"));

const PROGRAMS: [&str; 2] = ["net_dev_queue", "tcp_probe"];
/// Of each histogram.
const BINS: usize = 592;
/// In the order of `struct histograms`.
const NAMES: [&str; 4] = ["sent.bytes", "received.bytes", "sent.gap", "received.gap"];

type Histograms = [[u64; BINS]; NAMES.len()];

/// Of what, lower and upper bound in bytes or ns, count.
pub type Row = (&'static str, u64, u64, u64);

pub struct Acks {
    _ebpf: Ebpf, // its programs are attached for as long as it lives
    counted: PerCpuArray<MapData, Histograms>,
    before: Box<Histograms>,
}

impl Acks {
    /// Loads and attaches them for connections of this network namespace, or says in a sentence why that can't be.
    pub fn new(types: &Btf, endpoints: &[Endpoint]) -> Result<Self, String> {
        attach(types, &Filter::new(endpoints)).map_err(|why| why.to_string())
    }

    /// What was counted since the last call.
    pub fn since(&mut self) -> Vec<Row> {
        let Ok(each) = self.counted.get(&0, 0) else { return vec![] };
        let mut now = Box::new([[0; BINS]; NAMES.len()]);
        for cpu in each.iter() {
            for (sum, count) in now.iter_mut().flatten().zip(cpu.iter().flatten()) {
                *sum += count;
            }
        }
        let rows = rows(&self.before, &now);
        self.before = now;
        rows
    }
}

fn rows(before: &Histograms, after: &Histograms) -> Vec<Row> {
    let mut found = vec![];
    for (name, (before, after)) in NAMES.into_iter().zip(before.iter().zip(after)) {
        for (bin, (before, after)) in (0..).zip(before.iter().zip(after)) {
            if after > before {
                let (lower, upper) = bounds(bin);
                found.push((name, lower, upper, after - before));
            }
        }
    }
    found
}

fn attach(types: &Btf, filter: &Filter) -> Result<Acks, Failure> {
    let namespace = namespace()?;
    let mut loader = loader_without_types();
    loader.btf(Some(types));
    loader.allow_unsupported_maps(); // aya has no reader for what the kernel keeps with sockets, and nobody reads it
    loader.verifier_log_level(VerifierLogLevel::DISABLE); // writing it takes most of the time that loading takes
    loader
        .set_global("namespace", &namespace, true)
        .set_global("endpoint_count", &filter.count, true)
        .set_global("endpoint_ports", &filter.ports, true)
        .set_global("endpoint_addresses", &filter.addresses, true);
    let mut ebpf = loader.load(OBJECT)?;
    attach_each(&mut ebpf, &PROGRAMS, types)?;
    let counted =
        PerCpuArray::try_from(taken(&mut ebpf, "HISTOGRAMS")?).map_err(|error| Failure::of(&error))?;
    Ok(Acks { _ebpf: ebpf, counted, before: Box::new([[0; BINS]; NAMES.len()]) })
}

/// Endpoints as they lie in the memory of the programs: in the order of the network, 0 is any.
struct Filter {
    count: u32,
    ports: [u16; MAX_EACH],
    addresses: [[u8; 16]; MAX_EACH],
}

impl Filter {
    fn new(endpoints: &[Endpoint]) -> Self {
        let mut filter = Self { count: 0, ports: [0; MAX_EACH], addresses: [[0; 16]; MAX_EACH] };
        for (at, one) in endpoints.iter().take(MAX_EACH).enumerate() {
            filter.count += 1;
            filter.ports[at] = one.port.unwrap_or_default().to_be();
            filter.addresses[at] = match one.address {
                None => Ipv6Addr::UNSPECIFIED,
                Some(IpAddr::V4(address)) => address.to_ipv6_mapped(),
                Some(IpAddr::V6(address)) => address,
            }
            .octets();
        }
        filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_lies_in_memory_as_the_network_has_it() {
        let v4 = Endpoint { address: Some("10.0.0.1".parse().unwrap()), port: Some(0x1234) };
        let any = Endpoint { address: None, port: None };
        let filter = Filter::new(&[v4, any]);
        assert_eq!((filter.count, filter.ports[0].to_ne_bytes(), filter.ports[1]), (2, [0x12, 0x34], 0));
        assert_eq!(filter.addresses[0], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!(filter.addresses[1], [0; 16]);
    }

    #[test]
    fn rows_are_of_bins_that_grew() {
        let before = [[1; BINS]; NAMES.len()];
        let mut after = before;
        after[0][3] += 2;
        after[3][16 + 5] += 7;
        assert_eq!(rows(&before, &after), [("sent.bytes", 3, 4, 2), ("received.gap", 21, 22, 7)]);
    }
}
