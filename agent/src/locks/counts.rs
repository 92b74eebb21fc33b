//! What the programs have counted so far, out of their maps, by function. The layouts are those of `bpf/locks.bpf.c`.

use std::collections::{BTreeMap, HashMap, HashSet};

use aya::Ebpf;
use aya::maps::{Array, HashMap as BpfHashMap, Map, MapError};

use crate::symbols::Symbols;

/// Of each histogram; bin n is from 2^n ns.
pub const BINS: usize = 40;
/// Waits that go on at once, as many as there is room for.
const MOST_WAITS: usize = 16384;

type Who = [u64; 2];
type RawSums = [u64; 3 + BINS];
type Contended = [u64; 3];
type Wait = [u64; 5];

/// A function that waits for locks of a type; the function is `None` where its address is in none that is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Caller {
    pub function: Option<(String, Option<String>)>,
    pub kind: u32,
}

/// Waits of one caller and one kind of waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums {
    pub count: u64,
    pub slept: u64,
    /// ns.
    pub time: u64,
    pub bins: [u64; BINS],
}

/// What was not counted as it should have been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    pub full: u64,
    /// Found no room while they went on.
    pub begun: u64,
    /// Their end was not seen.
    pub ends: u64,
    /// Counted, but not the lock.
    pub locks: u64,
}

#[derive(Debug, Default)]
pub struct Counts {
    /// By caller, and by who waited: 0 anybody, 1 the group that was named, 2 a thread of the kernel.
    pub waits: BTreeMap<(Caller, u32), Sums>,
    /// How many different locks each waited for.
    pub locks: BTreeMap<Caller, u64>,
    /// Waits that had not ended.
    pub waiting: u64,
    pub lost: Lost,
}

/// Reads all maps.
pub fn read(ebpf: &Ebpf, symbols: &Symbols) -> Result<Counts, MapError> {
    let mut counts = Counts::default();
    let mut found = HashMap::new();
    let mut function = |address: u64| found.entry(address).or_insert_with(|| named(symbols, address)).clone();
    for entry in BpfHashMap::<_, Who, RawSums>::try_from(map(ebpf, "SUMS")?)?.iter() {
        let ([caller, kind_and_waiter], sums) = entry?;
        let (kind, waiter) = halves(kind_and_waiter);
        counts.add(Caller { function: function(caller), kind }, waiter, &sums);
    }
    let mut locks: BTreeMap<Caller, HashSet<u64>> = BTreeMap::new();
    for key in BpfHashMap::<_, Contended, u32>::try_from(map(ebpf, "LOCKS")?)?.keys() {
        let [caller, lock, kind] = key?;
        let caller = Caller { function: function(caller), kind: halves(kind).0 };
        locks.entry(caller).or_default().insert(lock);
    }
    counts.locks = locks.into_iter().map(|(caller, locks)| (caller, locks.len() as u64)).collect();
    let waits = BpfHashMap::<_, [u64; 2], Wait>::try_from(map(ebpf, "WAITS")?)?;
    counts.waiting = different(waits.keys());
    let lost = Array::<_, u64>::try_from(map(ebpf, "LOST")?)?;
    counts.lost = Lost {
        full: lost.get(&0, 0)?,
        begun: lost.get(&1, 0)?,
        ends: lost.get(&2, 0)?,
        locks: lost.get(&3, 0)?,
    };
    Ok(counts)
}

/// How many there are. Where the one that was read last has been deleted since, the next is the first again: on a busy
/// machine reading them would never end.
fn different<E>(keys: impl Iterator<Item = Result<[u64; 2], E>>) -> u64 {
    keys.take(MOST_WAITS).filter_map(Result::ok).collect::<HashSet<_>>().len() as u64
}

impl Counts {
    fn add(&mut self, caller: Caller, waiter: u32, raw: &RawSums) {
        let none = Sums { count: 0, slept: 0, time: 0, bins: [0; BINS] };
        let sums = self.waits.entry((caller, waiter)).or_insert(none);
        let [count, slept, time, bins @ ..] = raw;
        sums.count += count;
        sums.slept += slept;
        sums.time += time;
        for (sum, bin) in sums.bins.iter_mut().zip(bins) {
            *sum += bin;
        }
    }
}

/// Of a return address: the call before it may be its function's last instruction.
fn named(symbols: &Symbols, address: u64) -> Option<(String, Option<String>)> {
    let symbol = symbols.at(address.checked_sub(1)?)?;
    Some((symbol.name.to_owned(), symbol.module.map(str::to_owned)))
}

/// Two numbers of 32 bits that stand one after the other in memory.
fn halves(both: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = both.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

fn map<'a>(ebpf: &'a Ebpf, name: &str) -> Result<&'a Map, MapError> {
    ebpf.map(name).ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_are_read_again_and_again_are_counted_once() {
        let read = std::iter::repeat([[1, 2], [1, 3]]).flatten().map(Ok::<_, ()>);
        assert_eq!(different(read), 2);
    }

    #[test]
    fn calls_from_one_function_are_one_caller() {
        let symbols =
            Symbols::parse(&b"ffffffff81000100 T vfs_write\nffffffff81000200 T vfs_read\n"[..]).unwrap();
        let mut counts = Counts::default();
        for address in [0xffff_ffff_8100_0110, 0xffff_ffff_8100_0200, 0] {
            let caller = Caller { function: named(&symbols, address), kind: 32 };
            let mut raw = [0; 3 + BINS];
            raw[..4].copy_from_slice(&[2, 1, 30, 2]);
            counts.add(caller, 0, &raw);
        }
        let found: Vec<_> =
            counts.waits.iter().map(|((who, _), sums)| (who.function.clone(), sums)).collect();
        assert_eq!(found[0].0, None);
        assert_eq!(found[1].0, Some(("vfs_write".into(), None)));
        assert_eq!((found[1].1.count, found[1].1.slept, found[1].1.time, found[1].1.bins[0]), (4, 2, 60, 4));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn two_numbers_are_read_as_they_lie_in_memory() {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&18_u32.to_ne_bytes());
        bytes[4..].copy_from_slice(&2_u32.to_ne_bytes());
        assert_eq!(halves(u64::from_ne_bytes(bytes)), (18, 2));
    }
}
