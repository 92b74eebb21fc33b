//! The kernel's types, no more of them than the programs need.
//!
//! A kernel has some hundred thousand types, and reading all of them takes most of the time and memory that loading a
//! few small programs takes. So what is not needed is blanked out before it is parsed. Types keep their numbers, by which
//! the kernel knows them. Format: Documentation/bpf/btf.rst.

use std::collections::HashMap;
use std::path::Path;
use std::{fs, io};

use aya::{Btf, BtfError, Endianness};

/// Where the kernel shows them.
pub const KERNEL: &str = "/sys/kernel/btf/vmlinux";

#[derive(Debug, Clone, Copy)]
pub struct Needed {
    pub types: &'static [&'static str],
    /// What the names of their tracepoints' types begin with.
    pub tracepoints: &'static [&'static str],
}

/// As `bpf/kernel.h` has them.
pub const BLOCK: Needed = Needed {
    types: &[
        "request",
        "request_queue",
        "blk_mq_hw_ctx",
        "gendisk",
        "block_device",
        "bvec_iter",
        "bio",
        "req_op",
        "req_opf",
        "req_flag_bits",
        "rqf_flags",
        "task_struct",
    ],
    tracepoints: &["btf_trace_block_"],
};
/// What `bpf/block_tracepoint.bpf.c` needs of them.
pub const TASKS: Needed = Needed { types: &["task_struct"], tracepoints: &[] };
/// What `bpf/locks.bpf.c` needs of them.
pub const LOCKS: Needed = Needed { types: &["task_struct"], tracepoints: &["btf_trace_contention_"] };
/// As `bpf/tcp_kernel.h` has them.
pub const TCP: Needed = Needed {
    types: &["sock_common", "sock", "inet_sock", "tcp_sock", "net", "ns_common", "sk_buff", "tcphdr"],
    tracepoints: &["btf_trace_inet_sock_set_state", "btf_trace_net_dev_queue", "btf_trace_tcp_"],
};

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const HEAD: usize = 12;

const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FWD: u32 = 7;
const TYPEDEF: u32 = 8;
const ENUM64: u32 = 19;

/// Why they can't be had.
#[derive(Debug, thiserror::Error)]
pub enum NoTypes {
    /// The kernel was made without them, or hides them.
    #[error("this kernel has no BTF ({KERNEL}: {0})")]
    Absent(#[from] io::Error),
    #[error("the kernel's BTF can't be read: {0}")]
    Unknown(#[from] BtfError),
}

pub fn of_kernel(path: &Path, needed: &Needed) -> Result<Btf, NoTypes> {
    let whole = fs::read(path)?;
    // What can't be taken apart here is left to those who know more of the format.
    let pruned = Blob::new(&whole).and_then(|blob| blob.pruned(needed));
    Ok(Btf::parse(pruned.as_deref().unwrap_or(&whole), Endianness::default())?)
}

struct Blob<'a> {
    header: &'a [u8],
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins in `types`; that of number 1 first.
    starts: Vec<usize>,
}

impl<'a> Blob<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.get(..HEADER)?;
        if u16::from_ne_bytes(header[..2].try_into().ok()?) != MAGIC {
            return None;
        }
        let word = |at| usize::try_from(word_at(header, at)?).ok();
        let body = bytes.get(word(4)?..)?;
        let part = |offset: usize, length: usize| body.get(offset..offset.checked_add(length)?);
        let (types, strings) = (part(word(8)?, word(12)?)?, part(word(16)?, word(20)?)?);
        let mut starts = vec![];
        let mut at = 0;
        while at < types.len() {
            starts.push(at);
            at += HEAD + rest_of(word_at(types, at + 4)?)?;
        }
        Some(Self { header, types, strings, starts })
    }

    /// The same types, with all that are not needed blank, and none after the last that is.
    fn pruned(&self, wanted: &Needed) -> Option<Vec<u8>> {
        let needed = self.needed(wanted)?;
        let last = *needed.keys().max()?;
        let mut strings = vec![0];
        let mut types = Vec::with_capacity(last * HEAD + (64 << 10));
        for number in 1..=last {
            match needed.get(&number) {
                Some(whole) => self.copy(number, *whole, &mut types, &mut strings)?,
                None => types.extend([0, FWD << 24, 0].into_iter().flat_map(u32::to_ne_bytes)),
            }
        }
        let lengths = [HEADER, 0, types.len(), types.len(), strings.len()];
        let mut pruned = self.header[..4].to_vec();
        for length in lengths {
            pruned.extend(u32::try_from(length).ok()?.to_ne_bytes());
        }
        Some([pruned, types, strings].concat())
    }

    /// Numbers of needed types; false: its name is enough.
    fn needed(&self, wanted: &Needed) -> Option<HashMap<usize, bool>> {
        let (named, tracepoints) = self.offsets_of_names(wanted);
        let mut needed = HashMap::new();
        let mut waiting = vec![];
        for number in 1..=self.starts.len() {
            let (name, info, _) = self.head(number)?;
            match kind(info) {
                TYPEDEF if tracepoints.contains(&name) => {
                    needed.insert(number, false);
                }
                STRUCT | ENUM | ENUM64 if named.contains(&name) => waiting.push(number),
                _ => {}
            }
        }
        while let Some(number) = waiting.pop() {
            if number != 0 && needed.insert(number, true).is_none() {
                waiting.extend(self.parts(number)?);
            }
        }
        Some(needed)
    }

    /// Types that a type consists of. What a pointer points to is not a part.
    fn parts(&self, number: usize) -> Option<Vec<usize>> {
        let (_, info, other) = self.head(number)?;
        let at = self.starts[number - 1] + HEAD;
        let id = |at| usize::try_from(word_at(self.types, at)?).ok();
        match kind(info) {
            STRUCT | UNION => (0..count(info)).map(|member| id(at + member * 12 + 4)).collect(),
            ARRAY => Some(vec![id(at)?]),
            TYPEDEF | 9 | 10 | 11 | 18 => Some(vec![usize::try_from(other).ok()?]),
            _ => Some(vec![]),
        }
    }

    fn copy(&self, number: usize, whole: bool, types: &mut Vec<u8>, strings: &mut Vec<u8>) -> Option<()> {
        let (name, info, other) = self.head(number)?;
        let at = self.starts[number - 1] + HEAD;
        let other = if whole && kind(info) != PTR { other } else { 0 };
        let mut rest = self.types.get(at..at + rest_of(info)?)?.to_vec();
        let step = match kind(info) {
            STRUCT | UNION | ENUM64 => 12,
            ENUM => 8,
            _ => 0,
        };
        for member in (0..rest.len()).step_by(step.max(1)).take_while(|_| step > 0) {
            let name = self.keep(word_at(&rest, member)?, strings)?;
            rest[member..member + 4].copy_from_slice(&name.to_ne_bytes());
        }
        let head = [self.keep(name, strings)?, info, other];
        types.extend(head.into_iter().flat_map(u32::to_ne_bytes));
        types.extend(rest);
        Some(())
    }

    /// Puts a string among those that stay, and gives its new place.
    fn keep(&self, offset: u32, strings: &mut Vec<u8>) -> Option<u32> {
        if offset == 0 {
            return Some(0);
        }
        let tail = self.strings.get(usize::try_from(offset).ok()?..)?;
        let end = tail.iter().position(|byte| *byte == 0)?;
        let place = u32::try_from(strings.len()).ok()?;
        strings.extend(&tail[..=end]);
        Some(place)
    }

    /// Where the names of needed types and of tracepoints stand; each stands there once.
    fn offsets_of_names(&self, wanted: &Needed) -> (Vec<u32>, Vec<u32>) {
        let (mut named, mut tracepoints) = (vec![], vec![]);
        let mut at = 0;
        for name in self.strings.split(|byte| *byte == 0) {
            if wanted.types.iter().any(|known| known.as_bytes() == name) {
                named.push(at);
            } else if wanted.tracepoints.iter().any(|known| name.starts_with(known.as_bytes())) {
                tracepoints.push(at);
            }
            at += u32::try_from(name.len()).unwrap_or_default() + 1;
        }
        (named, tracepoints)
    }

    fn head(&self, number: usize) -> Option<(u32, u32, u32)> {
        let at = *self.starts.get(number - 1)?;
        Some((word_at(self.types, at)?, word_at(self.types, at + 4)?, word_at(self.types, at + 8)?))
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn kind(info: u32) -> u32 {
    info >> 24 & 0x1f
}

fn count(info: u32) -> usize {
    usize::try_from(info & 0xffff).unwrap_or_default()
}

/// Bytes that follow a type's head.
fn rest_of(info: u32) -> Option<usize> {
    let count = count(info);
    Some(match kind(info) {
        1 | 14 | 17 => 4,
        ARRAY => 12,
        STRUCT | UNION | ENUM64 | 15 => count * 12,
        ENUM | 13 => count * 8,
        PTR | FWD | TYPEDEF | 9..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_kept_of_this_kernels_types_is_little() {
        let Ok(whole) = fs::read(KERNEL) else { return };
        let block = [("request", STRUCT), ("req_op", ENUM), ("btf_trace_block_rq_issue", TYPEDEF)];
        let tcp = [("tcp_sock", STRUCT), ("sock", STRUCT), ("btf_trace_tcp_destroy_sock", TYPEDEF)];
        let tasks = [("task_struct", STRUCT)];
        for (needed, names) in [(BLOCK, &block[..]), (TCP, &tcp[..]), (TASKS, &tasks[..])] {
            let pruned = Blob::new(&whole).and_then(|blob| blob.pruned(&needed)).unwrap();
            assert!(pruned.len() < whole.len() / 4);
            Btf::parse(&pruned, Endianness::default()).unwrap();
            for (name, of) in names {
                assert_eq!(number(&whole, name, *of), number(&pruned, name, *of));
            }
        }
    }

    fn number(bytes: &[u8], name: &str, of: u32) -> usize {
        let blob = Blob::new(bytes).unwrap();
        let is_it = |number: &usize| {
            let (offset, info, _) = blob.head(*number).unwrap();
            kind(info) == of && blob.strings[offset as usize..].starts_with(format!("{name}\0").as_bytes())
        };
        (1..=blob.starts.len()).find(is_it).unwrap()
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
            let bytes = if magic { [&MAGIC.to_ne_bytes(), &bytes[..]].concat() } else { bytes };
            let _ = Blob::new(&bytes).and_then(|blob| blob.pruned(&BLOCK));
        }
    }
}
