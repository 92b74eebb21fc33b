//! Events: what the agent answers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::frame::Failure;
use super::frame::encode;
use super::steps::StepResult;
use crate::perf::Counted;

/// What happened, to go out under the `id` of its request.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Hello {
        protocol: u64,
        version: &'static str,
        pid: u32,
        boot_id: String,
        hostname: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        lease_ns: Option<u64>,
    },
    Refused {
        message: String,
    },
    Clock {
        monotonic_ns: u64,
        realtime_ns: u64,
    },
    Facts(Box<Facts>),
    Started {
        pid: i32,
        cgroup: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        confined: Option<bool>,
    },
    Stdout {
        monotonic_ns: u64,
    },
    Stderr {
        monotonic_ns: u64,
    },
    Exit(Box<Exit>),
    Data,
    Turns {
        turns: Vec<(u64, u64)>,
    },
    Sample {
        monotonic_ns: u64,
        realtime_ns: u64,
        late_ns: u64,
        sizes: Vec<i64>,
    },
    Steps {
        results: Vec<StepResult>,
    },
    Done(Done),
    Error(Failure),
}

/// The fields of a `done`, of which each operation has its own.
#[derive(Debug, Default, Serialize)]
pub struct Done {
    /// Bytes read or written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticks: Option<u64>,
}

impl Event {
    /// `done`, and no more to say.
    pub fn done() -> Self {
        Self::Done(Done::default())
    }

    /// `done` of a `read` or `write`.
    pub fn done_size(size: u64) -> Self {
        Self::Done(Done { size: Some(size), ticks: None })
    }

    /// `done` of a `sample`.
    pub fn done_ticks(ticks: u64) -> Self {
        Self::Done(Done { size: None, ticks: Some(ticks) })
    }
}

#[derive(Debug, Serialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<String>,
    pub timed_out: bool,
    pub stopped_by: Option<&'static str>,
    pub late_ns: Option<u64>,
    pub start_ns: Option<u64>,
    pub elapsed_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub max_rss_bytes: u64,
    pub survivors: usize,
    pub dropped: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

#[derive(Debug, Serialize)]
pub struct Facts {
    pub kernel: Kernel,
    pub os: Option<String>,
    pub hostname: String,
    pub cpus: Cpus,
    pub memory: Memory,
    pub modules: Vec<String>,
    pub filesystems: Vec<String>,
    pub clocks: Clocks,
    pub cgroup: &'static str,
    pub uid: u32,
    pub virtualization: Option<String>,
    pub tools: BTreeMap<String, Option<Tool>>,
}

/// The kernel, as `uname(2)` says.
#[derive(Debug, Serialize)]
pub struct Kernel {
    pub release: String,
    pub version: String,
    pub machine: String,
}

#[derive(Debug, Serialize)]
pub struct Cpus {
    pub online: u64,
    pub model: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Memory {
    pub total_bytes: u64,
    pub available_bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct Clocks {
    pub source: Option<String>,
    pub resolution_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tool {
    pub path: String,
    pub version: Option<String>,
}

#[derive(Serialize)]
struct Header<'a> {
    id: u64,
    #[serde(flatten)]
    event: &'a Event,
}

/// Appends `event` as one frame; one that doesn't fit into a frame goes out as an `error`.
pub fn encode_event(out: &mut Vec<u8>, id: u64, event: &Event, payload: &[u8]) {
    let written = serde_json::to_vec(&Header { id, event })
        .map_err(|error| error.to_string())
        .and_then(|header| encode(out, &header, payload).map_err(|error| error.to_string()));
    if let Err(message) = written {
        let event = Event::Error(Failure::new(format!("the answer can't be sent: {message}")));
        let header = serde_json::to_vec(&Header { id, event: &event }).unwrap_or_default();
        // A header this short always fits.
        encode(out, &header, &[]).unwrap_or_default();
    }
}
