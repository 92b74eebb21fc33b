//! Numbers that look random and are computed from what they are for: nothing is drawn, so nothing must be kept.

/// Mixes all bits of a number into all bits of another: the finalizer of `SplitMix64`. G. Steele, D. Lea, C. Flood,
/// "Fast splittable pseudorandom number generators", OOPSLA 2014. A bijection.
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The number of a `purpose`, of thing `index`, in a run with this seed.
pub fn derive(seed: u64, purpose: u64, index: u64) -> u64 {
    mix(mix(mix(seed ^ 0x6a09_e667_f3bc_c908).wrapping_add(purpose)).wrapping_add(index))
}

/// Uniform in 0 ≤ x < 1, with 53 bits.
pub fn unit(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

/// Increment of `SplitMix64`.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills `block` with what a file has from `offset` on: can't be compressed, and no two blocks of all files are equal.
/// `offset` is a multiple of 8.
pub fn fill(file: u64, offset: u64, block: &mut [u8]) {
    let mut state = file.wrapping_add((offset / 8).wrapping_mul(GAMMA));
    let mut words = block.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&mix(state).to_le_bytes());
        state = state.wrapping_add(GAMMA);
    }
    let rest = words.into_remainder();
    let last = mix(state).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// An order of 0..`count` in which each comes once: a Feistel network of four rounds over the next even power of two,
/// walked until it hits a number below `count` (J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", 2002).
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    key: u64,
    count: u64,
    half: u32,
}

impl Permutation {
    /// `key` decides which order it is.
    pub fn new(key: u64, count: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { key, count, half: bits.div_ceil(2).max(1) }
    }

    /// What stands at `position`, which is below the count.
    pub fn at(&self, position: u64) -> u64 {
        let mut number = self.encipher(position);
        while number >= self.count {
            number = self.encipher(number);
        }
        number
    }

    fn encipher(&self, number: u64) -> u64 {
        let mask = (1_u64 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ (derive(self.key, round, right) & mask));
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_permutation_hits_each_number_once(key: u64, count in 1_u64..3000) {
            let permutation = Permutation::new(key, count);
            let mut hit: Vec<u64> = (0..count).map(|position| permutation.at(position)).collect();
            hit.sort_unstable();
            prop_assert!(hit.into_iter().eq(0..count));
        }

        #[test]
        fn a_file_is_the_same_in_whatever_pieces_it_is_written(file: u64, words in 0_usize..64, length in 0_usize..600) {
            let cut = (words * 8).min(length / 8 * 8);
            let mut whole = vec![0; length];
            fill(file, 0, &mut whole);
            let mut pieces = vec![0; length];
            fill(file, 0, &mut pieces[..cut]);
            fill(file, cut as u64, &mut pieces[cut..]);
            prop_assert_eq!(whole, pieces);
        }
    }

    #[test]
    fn orders_differ_by_their_key_and_are_no_order_at_all() {
        let first: Vec<u64> = (0..1000).map(|position| Permutation::new(1, 1000).at(position)).collect();
        let second: Vec<u64> = (0..1000).map(|position| Permutation::new(2, 1000).at(position)).collect();
        assert_ne!(first, second);
        let neighbours = first.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(neighbours < 20, "{neighbours}");
    }

    #[test]
    fn two_files_have_nothing_in_common() {
        let (mut one, mut other) = ([0; 4096], [0; 4096]);
        fill(derive(1, 0, 1), 0, &mut one);
        fill(derive(1, 0, 2), 0, &mut other);
        let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(same < 60, "{same} of 4096 bytes; by chance 16");
    }
}
