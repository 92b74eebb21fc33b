//! The contract with the controller, without any I/O: `docs/reference/agent-protocol.md`.

mod event;
mod frame;
mod request;
mod steps;

pub use event::{Clocks, Cpus, Event, Exit, Facts, Kernel, Memory, Tool, encode_event};
pub use frame::Failure;
pub use frame::{
    DecodeError, Decoder, EncodeError, Frame, MAX_FRAME, MAX_GREETING, MAX_HEADER, PREFACE, encode,
};
pub use request::{
    Operation, Output, Read, Request, RequestError, Run, Sample, Stdin, StdinKind, Stop, Survivors, Turns,
    Write, is_file_name, parse,
};
pub use steps::{MAX_CONTENTS, MAX_STEPS, Program, Step, StepResult, Steps};

/// The version of the protocol that this agent speaks.
pub const PROTOCOL: u64 = 1;
/// The payload of one `data` event, at most.
pub const DATA_CHUNK: usize = 262_144;
