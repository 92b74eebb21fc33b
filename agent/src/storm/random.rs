//! Numbers that look random and are computed from what they are for: nothing is drawn, so nothing must be kept.

use serde::Deserialize;

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

// How large each file is: computed from its number, so that no size must be kept.

const FIRST: u64 = 1;
const SECOND: u64 = 2;

/// What sizes files have, in bytes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Sizes {
    Fixed {
        /// Of each.
        bytes: u64,
    },
    /// Each size from `min` to `max` as often as any other.
    Uniform { min: u64, max: u64 },
    /// The logarithm is normally distributed, as sizes in file systems nearly are; cut off at both ends.
    Lognormal {
        /// Half of all are smaller.
        median: u64,
        sigma: f64,
        min: u64,
        max: u64,
    },
    /// Some sizes, each with its share.
    Weighted {
        /// Size and weight; weights are relative to their sum.
        choices: Vec<(u64, f64)>,
    },
}

impl Sizes {
    /// Why there can be no such sizes.
    pub fn fault(&self) -> Option<&'static str> {
        match self {
            Self::Fixed { .. } => None,
            Self::Uniform { min, max } | Self::Lognormal { min, max, .. } if min > max => {
                Some("the smallest size is above the largest")
            }
            Self::Lognormal { sigma, .. } if !(sigma.is_finite() && *sigma >= 0.0) => {
                Some("sigma is no deviation")
            }
            Self::Uniform { .. } | Self::Lognormal { .. } => None,
            Self::Weighted { choices } => {
                let good = choices.iter().all(|(_, weight)| weight.is_finite() && *weight >= 0.0);
                let some = choices.iter().map(|(_, weight)| weight).sum::<f64>() > 0.0;
                (!good || !some).then_some("weights are positive")
            }
        }
    }

    /// The largest that a file can be.
    pub fn largest(&self) -> u64 {
        match self {
            Self::Fixed { bytes } => *bytes,
            Self::Uniform { max, .. } | Self::Lognormal { max, .. } => *max,
            Self::Weighted { choices } => choices.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }

    pub fn of(&self, seed: u64, file: u64) -> u64 {
        let first = unit(derive(seed, FIRST, file));
        match self {
            Self::Fixed { bytes } => *bytes,
            Self::Uniform { min, max } => {
                let width = u128::from(max - min) + 1;
                min + ((u128::from(derive(seed, FIRST, file)) * width) >> u64::BITS) as u64
            }
            Self::Lognormal { median, sigma, min, max } => {
                // G. Box, M. Muller, "A note on the generation of random normal deviates", 1958.
                let angle = std::f64::consts::TAU * unit(derive(seed, SECOND, file));
                let normal = (-2.0 * (1.0 - first).ln()).sqrt() * angle.cos();
                // A float that is too large for a u64 becomes the largest u64.
                (((*median as f64) * (sigma * normal).exp()).round() as u64).clamp(*min, *max)
            }
            Self::Weighted { choices } => {
                let mut left = first * choices.iter().map(|(_, weight)| weight).sum::<f64>();
                for (size, weight) in choices {
                    if left < *weight {
                        return *size;
                    }
                    left -= weight;
                }
                choices.iter().rfind(|(_, weight)| *weight > 0.0).map_or(0, |(size, _)| *size) // rounding
            }
        }
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

#[cfg(test)]
mod tests_of_sizes {
    use super::*;

    fn drawn(sizes: &Sizes, count: u64) -> Vec<u64> {
        let mut drawn: Vec<u64> = (0..count).map(|file| sizes.of(7, file)).collect();
        drawn.sort_unstable();
        drawn
    }

    #[test]
    fn uniform_sizes_reach_both_ends_and_are_even() {
        let drawn = drawn(&Sizes::Uniform { min: 10, max: 19 }, 10_000);
        assert_eq!((drawn[0], drawn[9_999]), (10, 19));
        for size in 10..=19 {
            let count = drawn.iter().filter(|each| **each == size).count();
            assert!((850..1150).contains(&count), "{size}: {count}");
        }
        assert_eq!(
            Sizes::Uniform { min: 0, max: u64::MAX }.of(1, 1),
            Sizes::Uniform { min: 0, max: u64::MAX }.of(1, 1)
        );
    }

    #[test]
    fn half_of_lognormal_sizes_are_below_the_median() {
        let sizes = Sizes::Lognormal { median: 4096, sigma: 1.0, min: 1, max: 1 << 20 };
        let drawn = drawn(&sizes, 10_000);
        assert!((3900..4300).contains(&drawn[5_000]), "{}", drawn[5_000]);
        // e^±1 of the median at one deviation: 16 % and 84 %.
        assert!((1400..1620).contains(&drawn[1_587]), "{}", drawn[1_587]);
        assert!((10_400..11_900).contains(&drawn[8_413]), "{}", drawn[8_413]);
    }

    #[test]
    fn lognormal_sizes_are_cut_off() {
        let drawn = drawn(&Sizes::Lognormal { median: 4096, sigma: 50.0, min: 100, max: 5000 }, 1000);
        assert_eq!((drawn[0], drawn[999]), (100, 5000));
    }

    #[test]
    fn weighted_sizes_come_as_often_as_they_should() {
        let sizes = Sizes::Weighted { choices: vec![(1, 3.0), (2, 0.0), (4, 1.0)] };
        let drawn = drawn(&sizes, 10_000);
        let ones = drawn.iter().filter(|size| **size == 1).count();
        assert!((7300..7700).contains(&ones), "{ones}");
        assert!(!drawn.contains(&2));
    }

    #[test]
    fn what_can_not_be_is_named() {
        assert!(Sizes::Uniform { min: 2, max: 1 }.fault().is_some());
        assert!(Sizes::Lognormal { median: 1, sigma: f64::NAN, min: 0, max: 1 }.fault().is_some());
        assert!(Sizes::Weighted { choices: vec![] }.fault().is_some());
        assert!(Sizes::Weighted { choices: vec![(1, -1.0), (2, 2.0)] }.fault().is_some());
    }
}
