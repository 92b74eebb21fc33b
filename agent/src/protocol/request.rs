//! Requests: what the controller asks for.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::frame::Failure;
use super::frame::Frame;
use super::steps::Steps;
use crate::confine::Confinement;

#[derive(Debug, PartialEq)]
pub struct Request {
    pub id: u64,
    pub operation: Operation,
}

#[derive(Debug, PartialEq)]
pub enum Operation {
    Hello { protocol: u64, lease_ns: Option<u64> },
    Clock,
    Facts { tools: BTreeMap<String, Vec<String>> },
    Run(Box<Run>),
    Stdin(Stdin),
    Stop(Stop),
    Turns(Turns),
    Read(Read),
    Write(Write),
    Sample(Sample),
    Steps(Steps),
    Shutdown,
}

/// A header that is no request to serve.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Nobody can be answered: the session ends.
    #[error("a frame that is no request: {0}")]
    Fatal(String),
    /// The request is answered with an `error`.
    #[error("request {id}: {}", failure.message)]
    Refused { id: u64, failure: Failure },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

#[derive(Deserialize)]
struct Hello {
    protocol: u64,
    #[serde(default, deserialize_with = "lease")]
    lease_ns: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FactsWanted {
    #[serde(default)]
    tools: BTreeMap<String, Vec<String>>,
}

/// `run`: start a program.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub argv: Vec<String>,
    /// Added to the agent's environment; `None` removes a variable.
    #[serde(default)]
    pub env: BTreeMap<String, Option<String>>,
    /// Working directory; the agent's where it is `None`.
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub stdin: StdinKind,
    #[serde(default)]
    pub stdout: Output,
    #[serde(default)]
    pub stderr: Output,
    /// Bytes of each stream that are sent; what follows is read, and only counted. All of it, where it is `None`.
    #[serde(default)]
    pub most_output: Option<u64>,
    /// How long it may take from its start.
    #[serde(default)]
    pub timeout_ns: Option<u64>,
    #[serde(default = "default_grace")]
    pub grace_ns: u64,
    /// When to execute, on `CLOCK_MONOTONIC`.
    #[serde(default)]
    pub start_at_ns: Option<i64>,
    /// What its cgroup's name ends with, so that whoever comes later finds it.
    #[serde(default, deserialize_with = "file_name")]
    pub name: Option<String>,
    /// What alone it may write to; all that the agent may, where it is `None`.
    #[serde(default)]
    pub confine: Option<Confinement>,
    /// What becomes of processes that outlive the first.
    #[serde(default)]
    pub survivors: Survivors,
    /// Count what its processes do, from exec on.
    #[serde(default)]
    pub count: bool,
}

/// What becomes of processes that outlive the first one of a run that ended by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Survivors {
    #[default]
    Kill,
    /// They stay, in the run's cgroup, until somebody else ends them or the agent ends.
    Keep,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinKind {
    /// `/dev/null`.
    #[default]
    None,
    /// What `stdin` requests bring.
    Stream,
    /// A regular file of the node, which the agent opens: the program need not be allowed to.
    File(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    #[default]
    Stream,
    Discard,
    File(String),
}

/// `stdin`: bytes for a run's standard input.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stdin {
    pub run: u64,
    #[serde(default)]
    pub eof: bool,
    #[serde(skip)]
    pub data: Vec<u8>,
}

/// `stop`: end a run or a sample.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    pub run: u64,
    #[serde(default = "default_grace")]
    pub grace_ns: u64,
    /// What a run's first process gets, and it alone, in place of a TERM to all: `"SIGINT"`.
    #[serde(default, deserialize_with = "signal")]
    pub signal: Option<Signal>,
}

/// `turns`: hold a run but for these turns.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    pub run: u64,
    /// From when to when it works, on `CLOCK_MONOTONIC`, one after the other; none: it is only held.
    #[serde(deserialize_with = "in_order")]
    pub turns: Vec<(u64, u64)>,
}

/// `read`: a file's content.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    pub path: String,
    #[serde(default)]
    pub offset: u64,
    /// How much, to the end where it is `None`.
    #[serde(default)]
    pub limit: Option<u64>,
}

/// `write`: put the payload into a file.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// The file; created where there is none.
    pub path: String,
    #[serde(default)]
    pub offset: u64,
    #[serde(default)]
    pub truncate: bool,
    #[serde(default = "default_mode")]
    pub mode: u32,
    /// Flush to the device before answering.
    #[serde(default)]
    pub sync: bool,
    #[serde(skip)]
    pub data: Vec<u8>,
}

/// `sample`: read files again and again.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    pub paths: Vec<String>,
    pub interval_ns: u64,
    /// How many samples; until stopped where it is `None`.
    #[serde(default)]
    pub count: Option<u64>,
}

/// The answer, with an instant of 16 digits or so for each beginning and end, must fit into one header.
const MAX_TURNS: usize = 1_000;

/// A lease may not end before its first renewal can have come.
const LEAST_LEASE: u64 = crate::clock::SECOND;

fn lease<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    match Option::<u64>::deserialize(value)? {
        Some(length) if length < LEAST_LEASE => Err(D::Error::custom("a lease takes a second at least")),
        length => Ok(length),
    }
}

pub(super) fn default_grace() -> u64 {
    2 * crate::clock::SECOND
}

fn default_mode() -> u32 {
    0o644
}

fn signal<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Signal>, D::Error> {
    let name = Option::<String>::deserialize(value)?;
    name.map(|name| name.parse().map_err(|_| D::Error::custom(format!("{name:?} is no signal")))).transpose()
}

fn file_name<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(value)?;
    match name {
        Some(name) if !is_file_name(&name) => Err(D::Error::custom(format!("{name:?} can't name a cgroup"))),
        name => Ok(name),
    }
}

fn in_order<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<(u64, u64)>, D::Error> {
    let turns = Vec::<(u64, u64)>::deserialize(value)?;
    let ends_before_it_begins = turns.iter().any(|(from, to)| from >= to);
    let begins_too_soon = turns.windows(2).any(|pair| pair[0].1 > pair[1].0);
    if ends_before_it_begins || begins_too_soon || turns.len() > MAX_TURNS {
        return Err(D::Error::custom("turns are at most 1000, follow each other, and take time"));
    }
    Ok(turns)
}

/// Whether it can be one directory's name, and lead nowhere else.
pub fn is_file_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    (1..=200).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

pub fn parse(frame: &Frame<'_>) -> Result<Request, RequestError> {
    let mut header: Map<String, Value> =
        serde_json::from_slice(frame.header).map_err(|error| RequestError::Fatal(error.to_string()))?;
    let id = match header.remove("id").as_ref().map(Value::as_u64) {
        Some(Some(id)) if id > 0 => id,
        Some(_) => return Err(RequestError::Fatal("its id is no positive integer".into())),
        None => return Err(RequestError::Fatal("it has no id".into())),
    };
    let operation = match header.remove("op") {
        Some(Value::String(op)) => parse_operation(&op, header, frame.payload),
        _ => Err(Failure::new("a request needs an op")),
    };
    match operation {
        Ok(operation) => Ok(Request { id, operation }),
        Err(failure) => Err(RequestError::Refused { id, failure }),
    }
}

fn parse_operation(op: &str, header: Map<String, Value>, payload: &[u8]) -> Result<Operation, Failure> {
    if !payload.is_empty() && !matches!(op, "stdin" | "write" | "steps") {
        return Err(Failure::new(format!("{op} takes no payload")));
    }
    Ok(match op {
        "hello" => {
            let Hello { protocol, lease_ns } = fields(op, header)?;
            Operation::Hello { protocol, lease_ns }
        }
        "clock" => fields::<Empty>(op, header).map(|_| Operation::Clock)?,
        "facts" => Operation::Facts { tools: fields::<FactsWanted>(op, header)?.tools },
        "run" => Operation::Run(Box::new(fields(op, header)?)),
        "stdin" => Operation::Stdin(Stdin { data: payload.to_vec(), ..fields(op, header)? }),
        "stop" => Operation::Stop(fields(op, header)?),
        "turns" => Operation::Turns(fields(op, header)?),
        "read" => Operation::Read(fields(op, header)?),
        "write" => Operation::Write(Write { data: payload.to_vec(), ..fields(op, header)? }),
        "sample" => Operation::Sample(fields(op, header)?),
        "steps" => Operation::Steps(fields::<Steps>(op, header)?.with_data(payload.to_vec())?),
        "shutdown" => fields::<Empty>(op, header).map(|_| Operation::Shutdown)?,
        _ => return Err(Failure::new(format!("unknown op {op:?}"))),
    })
}

fn fields<T: DeserializeOwned>(op: &str, header: Map<String, Value>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(header)).map_err(|error| Failure::new(format!("{op}: {error}")))
}
