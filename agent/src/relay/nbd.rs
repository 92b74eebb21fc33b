//! How long replies of NBD are, as requests ask for it: so a reply is whole when its last byte is there.
//!
//! Source: doc/proto.md of github.com/NetworkBlockDevice/nbd. A simple reply is a header and, to a read that succeeded,
//! the data; a structured one is chunks, each with its length, the last of which is marked.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::copy::{PIECE, hang_up, write};

const OPTION: u32 = 0x4948_4156; // IHAV, with which IHAVEOPT begins
const REQUEST: u32 = 0x2560_9513;
const SIMPLE: u32 = 0x6744_6698;
const CHUNK: u32 = 0x668e_33ef;
const MOST_FLAGS: u32 = 0xff; // with which a client begins
const MAGIC_SIZE: usize = 4;
const OPTION_SIZE: usize = 16;
const REQUEST_SIZE: usize = 28;
const SIMPLE_SIZE: usize = 16;
const CHUNK_SIZE: usize = 20;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DONE: u16 = 1;
const MOST: usize = 65_536; // reads without a reply: more than any client has
const LARGEST: usize = 2 * 1024 * 1024; // bytes that are held of a reply

/// What a client asked for and has no reply to yet.
#[derive(Default)]
pub struct Asked(Mutex<Reads>);

#[derive(Default)]
struct Reads {
    begun: bool,                // the handshake is over
    lost: bool,                 // it isn't NBD as it is known here
    sizes: HashMap<u64, usize>, // bytes of data by the request's cookie
}

impl Asked {
    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows what a client sends, in pieces of any length, before these are passed on.
pub struct Follower<'a> {
    asked: &'a Asked,
    header: Vec<u8>,
    skipped: usize, // bytes to come that are no header
}

impl<'a> Follower<'a> {
    pub fn new(asked: &'a Asked) -> Self {
        Self { asked, header: Vec::with_capacity(REQUEST_SIZE), skipped: 0 }
    }

    pub fn follow(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && !self.asked.reads().lost {
            let data = self.skipped.min(piece.len());
            self.skipped -= data;
            piece = &piece[data..];
            let taken = piece.len().min(self.wanted() - self.header.len());
            self.header.extend_from_slice(&piece[..taken]);
            piece = &piece[taken..];
            if self.header.len() >= MAGIC_SIZE && self.header.len() == self.wanted() {
                self.message();
                self.header.clear();
            }
        }
    }

    fn wanted(&self) -> usize {
        match number(&self.header, 0) {
            Some(OPTION) => OPTION_SIZE,
            Some(REQUEST) => REQUEST_SIZE,
            _ => MAGIC_SIZE,
        }
    }

    fn message(&mut self) {
        let mut reads = self.asked.reads();
        match number(&self.header, 0) {
            Some(OPTION) => self.skipped = size(&self.header, 12),
            Some(REQUEST) => {
                let (kind, length) = (short(&self.header, 6), size(&self.header, 24));
                reads.begun = true;
                reads.lost |= reads.sizes.len() >= MOST;
                if kind == READ {
                    reads.sizes.insert(cookie(&self.header), length);
                }
                self.skipped = if kind == WRITE { length } else { 0 };
            }
            Some(flags) => reads.lost |= reads.begun || flags > MOST_FLAGS,
            None => {}
        }
    }
}

/// What is known of a reply whose first bytes are there.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Unknown,      // its header is not there yet
    Whole(usize), // bytes, of which some may still be to come
    None,         // it is no reply
}

fn reply(held: &[u8], reads: &Reads) -> Reply {
    let mut at = 0;
    loop {
        let Some(header) = held.get(at..) else { return Reply::Unknown };
        match number(header, 0) {
            Some(SIMPLE) if at == 0 && header.len() >= SIMPLE_SIZE => {
                let failed = number(header, 4) != Some(0);
                let data = reads.sizes.get(&cookie(header)).copied().unwrap_or(0);
                return Reply::Whole(SIMPLE_SIZE + if failed { 0 } else { data });
            }
            Some(CHUNK) if header.len() >= CHUNK_SIZE => {
                at += CHUNK_SIZE + size(header, 16);
                if short(header, 4) & DONE != 0 {
                    return Reply::Whole(at);
                }
            }
            Some(SIMPLE | CHUNK) | None => return Reply::Unknown,
            Some(_) => return Reply::None,
        }
    }
}

/// Passes on replies, each when all of it is there. What is before the first request is passed on as it comes; so is
/// everything from something on that isn't NBD, or is larger than [`LARGEST`].
pub fn replies(mut from: &TcpStream, to: &TcpStream, head: usize, asked: &Asked) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut held = Vec::new();
    let ended = loop {
        match from.read(&mut piece) {
            Ok(0) => break write(to, &held, head),
            Ok(size) => held.extend_from_slice(&piece[..size]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break Err(error),
        }
        if let Err(error) = release(&mut held, to, head, asked) {
            break Err(error);
        }
    };
    hang_up(from, to, ended)
}

fn release(held: &mut Vec<u8>, to: &TcpStream, head: usize, asked: &Asked) -> io::Result<()> {
    let mut done = 0;
    while done < held.len() {
        let rest = &held[done..];
        let mut reads = asked.reads();
        let known = if reads.begun && !reads.lost { reply(rest, &reads) } else { Reply::None };
        let size = match known {
            Reply::Whole(size) if size <= rest.len() => size,
            Reply::Unknown | Reply::Whole(_) if rest.len() < LARGEST => break,
            Reply::Unknown | Reply::Whole(_) => {
                reads.lost = true; // where the next one begins can't be told any more
                rest.len()
            }
            Reply::None => {
                reads.lost |= reads.begun;
                rest.len()
            }
        };
        if size >= SIMPLE_SIZE {
            let _ = reads.sizes.remove(&cookie(rest));
        }
        drop(reads);
        write(to, &rest[..size], head)?;
        done += size;
    }
    held.drain(..done);
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn size(bytes: &[u8], at: usize) -> usize {
    number(bytes, at).map_or(0, |number| number as usize)
}

fn cookie(bytes: &[u8]) -> u64 {
    bytes[8..16].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
