//! How often each of some numbers was seen: few of them, so that they are kept in order and need no hashing.

use serde::{Serialize, Serializer};

#[derive(Debug, Default)]
pub struct Counts {
    sorted: Vec<(u32, u64)>,
    newest: usize, // mostly it is the same again
}

impl Counts {
    /// One more of `number`; not where it would be the first of more than `most` different ones.
    pub fn add(&mut self, number: u32, most: usize) {
        if let Some((_, count)) = self.sorted.get_mut(self.newest).filter(|(known, _)| *known == number) {
            *count += 1;
            return;
        }
        match self.sorted.binary_search_by_key(&number, |(known, _)| *known) {
            Ok(at) => {
                self.sorted[at].1 += 1;
                self.newest = at;
            }
            Err(at) if self.sorted.len() < most => {
                self.sorted.insert(at, (number, 1));
                self.newest = at;
            }
            Err(_) => {}
        }
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.sorted.iter().copied())
    }
}
