//! The contract with the controller, without any I/O: `docs/reference/agent-protocol.md`.

mod event;
mod failure;
mod frame;
mod request;

pub use event::{Clocks, Cpus, Event, Exit, Facts, Kernel, Memory, Tool, encode_event};
pub use failure::Failure;
pub use frame::{DecodeError, Decoder, EncodeError, Frame, encode};
pub use request::{
    Operation, Output, Read, Request, RequestError, Run, Sample, Stdin, StdinKind, Stop, Write, parse,
};

/// The version of the protocol that this agent speaks.
pub const PROTOCOL: u64 = 1;
/// What each side sends first.
pub const PREFACE: &[u8; 16] = b"storlab-agent/1\n";
/// The greatest length that a frame may announce.
pub const MAX_FRAME: usize = 2_097_152;
/// The greatest length of a header: its length is a 16-bit number.
pub const MAX_HEADER: usize = u16::MAX as usize;
/// How much may come before the preface.
pub const MAX_GREETING: usize = 65_536;
/// The payload of one `data` event, at most.
pub const DATA_CHUNK: usize = 262_144;
