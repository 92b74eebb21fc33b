//! Why a file can't be read as a capture.

use std::io;

/// A part of a sentence whose subject is the file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The first bytes are those of nothing that is known.
    #[error("is neither pcap nor pcapng")]
    Unknown,
    #[error("ends within its header")]
    Header,
    /// No card gives as many bytes at once.
    #[error("byte {at}: a packet of {length} bytes is none")]
    Packet { at: u64, length: u32 },
    #[error("byte {at}: a block of {length} bytes is none")]
    Block { at: u64, length: u32 },
    #[error("byte {0}: a section of no known order of bytes")]
    Order(u64),
    #[error("more than {0} interfaces")]
    Interfaces(usize),
    #[error("a packet of interface {0}, which the file doesn't describe")]
    Interface(u32),
    /// What was captured has no room in its block.
    #[error("a packet of {0} bytes in a block that is shorter")]
    Short(u32),
    #[error("is of link type {0}, which is not known here")]
    Link(u16),
    /// The kernel's reason.
    #[error("{0}")]
    Io(#[from] io::Error),
}
