//! How large each file is: computed from its number, so that no size must be kept.

use serde::Deserialize;

use super::random::{derive, unit};

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
