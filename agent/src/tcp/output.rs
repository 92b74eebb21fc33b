//! What goes out: JSON lines, as `docs/reference/tcp-output.md` has them.

use std::net::IpAddr;

use serde::Serialize;

use super::acks;
use super::counters::{Counters, Disk};
use super::diag::{Connection, Info};

/// The first line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "started")]
pub struct Started<'a> {
    pub interval_ns: u64,
    /// Ends of connections that were asked for; none: all.
    pub endpoints: &'a [String],
    pub disks: &'a [String],
    /// Of what `counters` of each sample are.
    pub counters: &'a [&'static str],
    /// Whether what opens and closes between samples is caught.
    pub events: bool,
    /// Why not.
    pub reason: Option<&'a str>,
    /// Whether pure ACKs are counted by their bytes and the gaps between them.
    pub distributions: bool,
    /// Why not.
    pub no_distributions: Option<&'a str>,
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
}

/// Cookie, this end, the other end, state, congestion control, what it has done.
pub type Row = (u64, IpAddr, u16, IpAddr, u16, u8, String, [u64; 25]);

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "sample")]
pub struct Sample {
    #[serde(rename = "final")]
    pub last: bool,
    pub monotonic_ns: u64,
    pub took_ns: u64,
    /// Connections that are new, or have changed since the last sample.
    pub connections: Vec<Row>,
    /// Cookies of those that were there in the last sample and are not in this one.
    pub gone: Vec<u64>,
    pub counters: Counters,
    /// Connections that have closed since the start, and whose last counts found no room.
    pub lost: u64,
    /// Name, reads, writes, bytes read, bytes written.
    pub disks: Vec<(String, Disk)>,
    /// Pure ACKs since the last sample.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acks: Vec<acks::Row>,
}

/// The last counts of a connection that has closed.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "closed")]
pub struct Closed {
    pub monotonic_ns: u64,
    /// Without times and sizes but the largest segment's.
    pub connection: Row,
}

pub fn row(each: &Connection) -> Row {
    let (local, remote) = (each.local, each.remote);
    let numbers = numbers(&each.info, each.queued);
    (each.cookie, local.0, local.1, remote.0, remote.1, each.state, each.congestion.clone(), numbers)
}

fn numbers(info: &Info, queued: (u32, u32)) -> [u64; 25] {
    let wide = [info.bytes_sent, info.bytes_retrans, info.bytes_acked, info.bytes_received];
    let narrow = [
        info.segs_out,
        info.segs_in,
        info.data_segs_out,
        info.data_segs_in,
        info.total_retrans,
        info.dsack_dups,
        info.reord_seen,
        info.rcv_ooopack,
        info.delivered,
        info.rtt,
        info.rttvar,
        info.min_rtt,
        info.cwnd,
        info.ssthresh,
        info.snd_mss,
        info.unacked,
        queued.0,
        queued.1,
    ];
    let times = [info.busy_time, info.rwnd_limited, info.sndbuf_limited];
    let mut all = wide.into_iter().chain(narrow.map(u64::from)).chain(times);
    std::array::from_fn(|_| all.next().unwrap_or_default())
}
