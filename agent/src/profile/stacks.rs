//! The stacks that were seen, each with a number; and, when all is over, their functions' names.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::elf::Functions;
use super::mapped::Maps;
use crate::symbols::Symbols;

const MOST: usize = 1 << 16;
/// As `bpf/profile.bpf.c` has it.
const DEPTH: usize = 127;
const HEAD: usize = 32;
const COMM: usize = 16;

const UNKNOWN: &str = "[unknown]";
const KERNEL: &str = "kernel";
/// Parts of the names of functions in which a CPU waits for work.
const IDLE: [&str; 3] = ["idle", "halt", "mwait"];

/// A place in a stack, from which a call went on; of the innermost, where the CPU was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Frame {
    Kernel(u64),
    /// A file's place, and the offset in it.
    User(usize, u64),
    Unmapped,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Stack {
    process_is_idle: bool,
    comm: [u8; COMM],
    /// The innermost first: of the kernel, then of the program.
    frames: Vec<Frame>,
}

#[derive(Debug, Default)]
pub struct Stacks {
    numbers: HashMap<Stack, usize>,
    since: BTreeMap<usize, u64>,
    without_room: u64,
    maps: Maps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// It was in the kernel.
    Kernel,
    User,
    /// It had nothing to do.
    Idle,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename = "stack")]
pub struct Row {
    id: usize,
    comm: String,
    group: Group,
    /// The outermost first: a function, and where it is: `kernel`, `module:NAME`, or the name of a file.
    frames: Vec<(String, String)>,
}

impl Stacks {
    /// Counts a sample: `struct sample` of `bpf/profile.bpf.c`.
    pub fn add(&mut self, bytes: &[u8]) {
        let Some(stack) = self.stack(bytes) else { return };
        let next = self.numbers.len();
        if next >= MOST && !self.numbers.contains_key(&stack) {
            self.without_room += 1;
            return;
        }
        let number = *self.numbers.entry(stack).or_insert(next);
        *self.since.entry(number).or_default() += 1;
    }

    /// How many samples were of stacks that found no room.
    pub fn without_room(&self) -> u64 {
        self.without_room
    }

    /// How often each was seen since the last call.
    pub fn since(&mut self) -> Vec<(usize, u64)> {
        std::mem::take(&mut self.since).into_iter().collect()
    }

    fn stack(&mut self, bytes: &[u8]) -> Option<Stack> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let length = |at: usize| {
            let bytes = i32::from_ne_bytes(word(at)?.to_ne_bytes());
            Some(usize::try_from(bytes).unwrap_or_default() / 8) // below 0: there is none
        };
        let addresses = |at: usize, count: usize| {
            let room = bytes.get(at..at + 8 * count.min(DEPTH))?;
            Some(room.chunks_exact(8).map(|each| u64::from_ne_bytes(each.try_into().unwrap_or_default())))
        };
        let (process, comm) = (word(0)?, bytes.get(16..HEAD)?.try_into().ok()?);
        let mut frames: Vec<_> = addresses(HEAD, length(4)?)?.map(Frame::Kernel).collect();
        let innermost = frames.is_empty();
        for (place, address) in addresses(HEAD + 8 * DEPTH, length(8)?)?.enumerate() {
            // A return address is after the call: that may be the last instruction of its function.
            let at = if innermost && place == 0 { address } else { address.saturating_sub(1) };
            let found = self.maps.at(process, comm, at);
            frames.push(found.map_or(Frame::Unmapped, |(file, offset)| Frame::User(file, offset)));
        }
        Some(Stack { process_is_idle: process == 0, comm, frames })
    }

    /// All of them with names, in the order of their numbers, and why functions of the kernel have none.
    pub fn named(&self) -> (impl Iterator<Item = Row>, Option<String>) {
        let (symbols, nameless) = match Symbols::of_kernel() {
            Ok(symbols) => (symbols, None),
            Err(why) => (Symbols::default(), Some(why.to_string())),
        };
        let mut stacks: Vec<_> = self.numbers.iter().collect();
        stacks.sort_unstable_by_key(|(_, number)| **number);
        let mut namer = Namer { symbols, maps: &self.maps, files: HashMap::new() };
        (stacks.into_iter().map(move |(stack, number)| namer.row(stack, *number)), nameless)
    }
}

struct Namer<'a> {
    symbols: Symbols,
    maps: &'a Maps,
    files: HashMap<usize, Functions>,
}

impl Namer<'_> {
    fn row(&mut self, stack: &Stack, id: usize) -> Row {
        let named: Vec<_> =
            stack.frames.iter().enumerate().map(|(place, frame)| self.name(frame, place == 0)).collect();
        let group = match (stack.frames.first(), named.first()) {
            (Some(Frame::Kernel(_)), Some((name, _))) => {
                let idle = stack.process_is_idle && IDLE.iter().any(|part| name.contains(part));
                if idle { Group::Idle } else { Group::Kernel }
            }
            (None, _) if stack.process_is_idle => Group::Idle,
            _ => Group::User,
        };
        let length = stack.comm.iter().position(|byte| *byte == 0).unwrap_or(COMM);
        let comm = String::from_utf8_lossy(&stack.comm[..length]).into_owned();
        Row { id, comm, group, frames: named.into_iter().rev().collect() }
    }

    fn name(&mut self, frame: &Frame, innermost: bool) -> (String, String) {
        match frame {
            Frame::Kernel(address) => {
                let at = if innermost { *address } else { address.saturating_sub(1) };
                self.symbols.at(at).map_or_else(
                    || (UNKNOWN.into(), KERNEL.into()),
                    |symbol| {
                        let module = symbol.module.map(|module| format!("module:{module}"));
                        (symbol.name.into(), module.unwrap_or_else(|| KERNEL.into()))
                    },
                )
            }
            Frame::User(file, offset) => {
                let place = *file;
                let file = self.maps.file(place);
                let functions = self.files.entry(place).or_insert_with(|| Functions::of(file));
                let name = functions.at(*offset).unwrap_or(UNKNOWN).to_owned();
                (
                    name,
                    file.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("[memory]").into(),
                )
            }
            Frame::Unmapped => (UNKNOWN.into(), UNKNOWN.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(process: u32, kernel: &[u64], user: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD + 16 * DEPTH];
        bytes[..4].copy_from_slice(&process.to_ne_bytes());
        for (at, stack, room) in [(4, kernel, HEAD), (8, user, HEAD + 8 * DEPTH)] {
            let length = if stack.is_empty() { -14 } else { stack.len() as i32 * 8 };
            bytes[at..at + 4].copy_from_slice(&length.to_ne_bytes());
            for (place, address) in stack.iter().enumerate() {
                bytes[room + 8 * place..][..8].copy_from_slice(&address.to_ne_bytes());
            }
        }
        bytes[16..19].copy_from_slice(b"fio");
        bytes
    }

    #[test]
    fn equal_stacks_are_one_and_are_counted_since_the_last_call() {
        let mut stacks = Stacks::default();
        for _ in 0..3 {
            stacks.add(&sample(u32::MAX, &[u64::MAX, 1], &[]));
        }
        stacks.add(&sample(u32::MAX, &[], &[5]));
        assert_eq!(stacks.since(), [(0, 3), (1, 1)]);
        assert_eq!(stacks.since(), []);
        stacks.add(&sample(u32::MAX, &[], &[5]));
        assert_eq!(stacks.since(), [(1, 1)]);
        let rows: Vec<_> = stacks.named().0.collect();
        assert_eq!(rows.iter().map(|row| row.group).collect::<Vec<_>>(), [Group::Kernel, Group::User]);
        assert_eq!(rows[0].frames, [(UNKNOWN.into(), KERNEL.into()), (UNKNOWN.into(), KERNEL.into())]);
        assert_eq!((rows[1].comm.as_str(), rows[1].id), ("fio", 1));
    }

    #[test]
    fn a_cpu_without_a_thread_or_a_stack_is_idle() {
        let mut stacks = Stacks::default();
        stacks.add(&sample(0, &[], &[]));
        assert_eq!(stacks.named().0.map(|row| row.group).collect::<Vec<_>>(), [Group::Idle]);
    }

    #[test]
    fn a_sample_that_was_cut_off_is_none() {
        let mut stacks = Stacks::default();
        let whole = sample(1, &[1, 2], &[3]);
        for length in [0, 4, HEAD, HEAD + 8] {
            stacks.add(&whole[..length]);
        }
        assert_eq!(stacks.since(), []);
    }
}
