//! Frames: how a stream of bytes is cut into headers and payloads.
//!
//! ```text
//! offset  size  what
//! 0       4     length of all that follows, big-endian
//! 4       2     length H of the header, big-endian
//! 6       H     header
//! 6+H     rest  payload
//! ```

use nix::errno::Errno;
use serde::Serialize;
use std::io;

/// What each side sends first.
pub const PREFACE: &[u8; 16] = b"storlab-agent/1\n";
/// The greatest length that a frame may announce.
pub const MAX_FRAME: usize = 2_097_152;
/// The greatest length of a header: its length is a 16-bit number.
pub const MAX_HEADER: usize = u16::MAX as usize;
/// How much may come before the preface.
pub const MAX_GREETING: usize = 65_536;

#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// One JSON object, not yet parsed.
    pub header: &'a [u8],
    /// Bytes whose meaning depends on the header.
    pub payload: &'a [u8],
}

/// A stream that is no storlab-agent stream: nothing that follows can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The greeting was longer than it may be.
    #[error("no preface within the first {MAX_GREETING} bytes: the other side is no storlab controller")]
    NoPreface,
    /// The announced length can't be.
    #[error("a frame of {0} bytes: it must be 2 to {MAX_FRAME}")]
    FrameLength(usize),
    /// The header would be longer than its frame.
    #[error("a header of {header} bytes in a frame of {frame}")]
    HeaderLength { header: usize, frame: usize },
}

/// A frame that can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The header's length is a 16-bit number.
    #[error("a header of {0} bytes: the limit is {MAX_HEADER}")]
    Header(usize),
    /// The whole is longer than a frame may be.
    #[error("a frame of {0} bytes: the limit is {MAX_FRAME}")]
    Frame(usize),
}

/// Appends one frame to `out`, or nothing.
pub fn encode(out: &mut Vec<u8>, header: &[u8], payload: &[u8]) -> Result<(), EncodeError> {
    let header_length = u16::try_from(header.len()).map_err(|_| EncodeError::Header(header.len()))?;
    let length = 2 + header.len() + payload.len();
    if length > MAX_FRAME {
        return Err(EncodeError::Frame(length));
    }
    out.extend_from_slice(&(length as u32).to_be_bytes());
    out.extend_from_slice(&header_length.to_be_bytes());
    out.extend_from_slice(header);
    out.extend_from_slice(payload);
    Ok(())
}

/// Cuts a stream into frames, however it was cut into chunks on its way.
///
/// Holds no more than one frame and what came with its last chunk, provided that [`Decoder::next_frame`] is
/// called until it gives `None` after each [`Decoder::push`].
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    consumed: usize,
    skipped: usize,
    greeted: bool,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        // Memory is taken once a frame, not by doubling: a frame of 2 MiB takes 2 MiB.
        let frame = self.lengths().ok().flatten().map_or(0, |(frame, _)| 4 + frame);
        let needed = frame.max(self.buffer.len()) + bytes.len();
        if self.buffer.capacity() < self.buffer.len() + bytes.len() {
            self.buffer.reserve_exact(needed - self.buffer.len());
        } else if self.buffer.capacity() > 4 * needed.max(65_536) {
            self.buffer.shrink_to(needed.max(65_536));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` until more bytes come.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, DecodeError> {
        if !self.greeted && !self.skip_greeting()? {
            return Ok(None);
        }
        let Some((frame, Some(header))) = self.lengths()? else { return Ok(None) };
        let start = self.consumed + 4;
        let Some(body) = self.buffer.get(start..start + frame) else { return Ok(None) };
        self.consumed = start + frame;
        let (header, payload) = body[2..].split_at(header);
        Ok(Some(Frame { header, payload }))
    }

    /// Memory held, in bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Lengths of the frame that comes next and of its header, as far as they have come; wrong ones are refused
    /// before any memory is taken for them.
    fn lengths(&self) -> Result<Option<(usize, Option<usize>)>, DecodeError> {
        if !self.greeted {
            return Ok(None);
        }
        let Some((length, rest)) = self.buffer[self.consumed..].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let frame = u32::from_be_bytes(*length) as usize;
        if !(2..=MAX_FRAME).contains(&frame) {
            return Err(DecodeError::FrameLength(frame));
        }
        let Some((length, _)) = rest.split_first_chunk::<2>() else { return Ok(Some((frame, None))) };
        let header = usize::from(u16::from_be_bytes(*length));
        if header > frame - 2 {
            return Err(DecodeError::HeaderLength { header, frame });
        }
        Ok(Some((frame, Some(header))))
    }

    fn skip_greeting(&mut self) -> Result<bool, DecodeError> {
        let bytes = &self.buffer[self.consumed..];
        let found = bytes.windows(PREFACE.len()).position(|window| window == PREFACE);
        // The last bytes may be the beginning of a preface that isn't all here yet.
        let skip = found.unwrap_or(bytes.len().saturating_sub(PREFACE.len() - 1));
        self.skipped += skip;
        self.consumed += skip;
        if self.skipped > MAX_GREETING {
            return Err(DecodeError::NoPreface);
        }
        if found.is_some() {
            self.consumed += PREFACE.len();
            self.greeted = true;
        }
        Ok(self.greeted)
    }
}

// What an `error` event says.

/// Why a request could not be served, in the form in which the controller learns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub message: String,
    /// Symbolic name of the system's error, where there is one: `"ENOENT"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), errno: None }
    }

    /// A failure with the error that describes it best, reported or not.
    pub fn errno(message: impl AsRef<str>, errno: Errno) -> Self {
        Self {
            message: format!("{}: {}", message.as_ref(), errno.desc()),
            errno: (errno != Errno::UnknownErrno).then(|| format!("{errno:?}")),
        }
    }

    /// What a call of the standard library reported.
    pub fn io(message: impl AsRef<str>, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::errno(message, Errno::from_raw(number)),
            None => Self::new(format!("{}: {error}", message.as_ref())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_error_keeps_its_symbolic_name() {
        let failure = Failure::io("can't open \"/x\"", &io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(failure.errno.as_deref(), Some("ENOSPC"));
        assert_eq!(failure.message, "can't open \"/x\": No space left on device");
    }

    #[test]
    fn a_failure_without_errno_leaves_it_out() {
        assert_eq!(serde_json::to_string(&Failure::new("no")).unwrap(), r#"{"message":"no"}"#);
    }
}
