//! What is asked for: one JSON document.

use super::random::Sizes;
use nix::errno::Errno;
use serde::{Deserialize, Serialize, Serializer};
use std::path::PathBuf;

pub const MOST_LEAVES: u64 = 1_000_000;
const MOST_FILES: u64 = 1 << 40;
const MOST_WORKERS: u64 = 1024;
const MOST_BLOCK: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// A directory that the phase `create` makes and `delete` removes.
    pub root: PathBuf,
    pub files: u64,
    pub sizes: Sizes,
    /// Sizes are rounded up to a multiple of this; 1: they are not.
    pub granule: u64,
    /// Bytes of one write or read, at most.
    pub block: u64,
    pub tree: TreeSpec,
    pub workers: u64,
    pub phases: Vec<Phase>,
    /// In which order files are taken once they exist.
    pub order: Order,
    pub fsync: Fsync,
    /// `O_DIRECT`.
    pub direct: bool,
    /// `syncfs` after the phases that change something.
    pub end_sync: bool,
    /// Empty the kernel's caches before the phases that only look.
    pub drop_caches: bool,
    /// Compare what is read with what was written.
    pub verify: bool,
    /// A phase that takes longer ends before it has done all files.
    pub phase_limit_ns: Option<u64>,
    pub seed: u64,
}

/// Directories in directories; files lie in those that have none below them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeSpec {
    /// Levels below the root of the tree; 0: all files lie in one directory.
    pub depth: u32,
    /// Directories in each directory.
    pub fan_out: u64,
    /// One tree for all workers, rather than one for each.
    pub shared: bool,
    pub spread: Spread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// In the same, until that has its share.
    Sequential,
    RoundRobin,
}

/// One thing that is done to all files before the next is done to any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The directories are made: the first part of `create`.
    #[serde(skip_deserializing)]
    Mkdir,
    Create,
    Read,
    /// `fstatat`.
    Stat,
    /// `unlinkat`.
    Delete,
    /// The directories are removed: the last part of `delete`.
    #[serde(skip_deserializing)]
    Rmdir,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mkdir => "mkdir",
            Self::Create => "create",
            Self::Read => "read",
            Self::Stat => "stat",
            Self::Delete => "delete",
            Self::Rmdir => "rmdir",
        }
    }
}

/// In which order files are taken once they exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Same,
    /// Another for each worker and phase.
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fsync {
    None,
    /// `fdatasync` of the file.
    Data,
    /// `fsync` of the file.
    File,
    /// `fsync` of the file, then of the directory that has its name.
    Directory,
}

impl Spec {
    /// Why it can't be done; `None` where it can.
    pub fn fault(&self) -> Option<&'static str> {
        let place = |wanted| self.phases.iter().position(|phase| *phase == wanted);
        let twice = (1..self.phases.len()).any(|at| self.phases[..at].contains(&self.phases[at]));
        let last = self.phases.len().saturating_sub(1);
        match () {
            () if !self.root.is_absolute() => Some("root is no absolute path"),
            () if self.files == 0 || self.files > MOST_FILES => Some("so many files can't be"),
            () if self.workers == 0 || self.workers > MOST_WORKERS => Some("so many workers can't be"),
            () if self.granule == 0 || self.granule > MOST_BLOCK => {
                Some("sizes can't be multiples of granule")
            }
            () if self.block == 0 || self.block > MOST_BLOCK || !self.block.is_multiple_of(8) => {
                Some("block is no multiple of 8 up to 1 GiB")
            }
            () if self.sizes.largest() > i64::MAX as u64 - self.granule => Some("no file can be so large"),
            () if self.tree.fan_out == 0 => Some("fan_out is 1 or more"),
            () if self.tree.leaves().is_none() => Some("the tree has too many directories"),
            () if self.phases.is_empty() || twice => Some("phases come once each"),
            () if place(Phase::Create).is_some_and(|at| at != 0) => Some("create is the first phase"),
            () if place(Phase::Delete).is_some_and(|at| at != last) => Some("delete is the last phase"),
            () => self.sizes.fault(),
        }
    }

    /// Bytes of one file.
    pub fn size(&self, file: u64) -> u64 {
        self.sizes.of(self.seed, file).div_ceil(self.granule) * self.granule
    }

    /// How many files a worker has: the `k`-th of `worker` is number `k · workers + worker`.
    pub fn files_of(&self, worker: u64) -> u64 {
        self.files / self.workers + u64::from(worker < self.files % self.workers)
    }
}

impl TreeSpec {
    pub fn leaves(&self) -> Option<u64> {
        let leaves = self.fan_out.checked_pow(self.depth)?;
        (leaves <= MOST_LEAVES && self.depth <= 32).then_some(leaves)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::storm::tree::Tree;

    pub fn spec() -> Spec {
        Spec {
            root: "/nowhere".into(),
            files: 10,
            sizes: Sizes::Fixed { bytes: 4096 },
            granule: 1,
            block: 65536,
            tree: tree(1, 10, false, Spread::Sequential),
            workers: 2,
            phases: vec![Phase::Create, Phase::Read, Phase::Stat, Phase::Delete],
            order: Order::Same,
            fsync: Fsync::None,
            direct: false,
            end_sync: true,
            drop_caches: false,
            verify: true,
            phase_limit_ns: None,
            seed: 1,
        }
    }

    pub fn tree(depth: u32, fan_out: u64, shared: bool, spread: Spread) -> TreeSpec {
        TreeSpec { depth, fan_out, shared, spread }
    }

    #[test]
    fn a_sound_one_has_no_fault() {
        assert_eq!(spec().fault(), None);
    }

    #[test]
    fn what_can_not_be_is_named() {
        use Phase::{Create, Delete, Read, Stat};
        for (spec, fault) in [
            (Spec { root: "a".into(), ..spec() }, "root"),
            (Spec { files: 0, ..spec() }, "files"),
            (Spec { workers: 0, ..spec() }, "workers"),
            (Spec { block: 0, ..spec() }, "block"),
            (Spec { granule: 0, ..spec() }, "granule"),
            (Spec { tree: tree(20, 10, false, Spread::Sequential), ..spec() }, "tree"),
            (Spec { tree: tree(64, 10, false, Spread::Sequential), ..spec() }, "tree"),
            (Spec { tree: tree(33, 1, false, Spread::Sequential), ..spec() }, "tree"),
            (Spec { tree: tree(1, 0, false, Spread::Sequential), ..spec() }, "fan_out"),
            (Spec { phases: vec![], ..spec() }, "phases"),
            (Spec { phases: vec![Create, Read, Read], ..spec() }, "once"),
            (Spec { phases: vec![Read, Create], ..spec() }, "create"),
            (Spec { phases: vec![Delete, Stat], ..spec() }, "delete"),
            (Spec { sizes: Sizes::Fixed { bytes: u64::MAX }, ..spec() }, "large"),
            (Spec { sizes: Sizes::Uniform { min: 2, max: 1 }, ..spec() }, "smallest"),
        ] {
            let found = spec.fault().unwrap_or_else(|| panic!("{spec:?} has no fault"));
            assert!(found.contains(fault), "{found}");
        }
    }

    /// Numbers of every magnitude up to so many bits.
    fn number(bits: u32) -> impl Strategy<Value = u64> {
        (any::<u64>(), 64 - bits..=64).prop_map(|(number, by)| number.checked_shr(by).unwrap_or(0))
    }

    fn sizes() -> impl Strategy<Value = Sizes> {
        let choices = vec((number(64), any::<f64>()), 0..4);
        prop_oneof![
            number(64).prop_map(|bytes| Sizes::Fixed { bytes }),
            (number(64), number(64)).prop_map(|(min, max)| Sizes::Uniform { min, max }),
            (number(64), 0.0..100.0_f64, number(64), number(64))
                .prop_map(|(median, sigma, min, max)| Sizes::Lognormal { median, sigma, min, max }),
            choices.prop_map(|choices| Sizes::Weighted { choices }),
        ]
    }

    proptest! {
        #[test]
        fn what_has_no_fault_has_sizes_and_places_for_all_files(
            sizes in sizes(), files in number(41), workers in number(11), granule in number(31), depth in 0..5_u32,
            fan_out in number(8), shared: bool, seed: u64, part in 0.0..1.0_f64,
        ) {
            let tree = tree(depth, fan_out, shared, Spread::Sequential);
            let spec = Spec { sizes, files, workers, granule, tree, seed, ..spec() };
            let worker = (spec.workers as f64 * part) as u64;
            if spec.fault().is_some() || spec.files_of(worker) == 0 {
                return Ok(());
            }
            let (tree, own) = (Tree::of(&spec, worker), (spec.files_of(worker) as f64 * part) as u64);
            prop_assert!(tree.file(own) < spec.files && Some(tree.leaf(own)) < spec.tree.leaves());
            prop_assert!(spec.size(tree.file(own)) < spec.sizes.largest().max(1) + spec.granule);
        }
    }

    #[test]
    fn sizes_are_rounded_up() {
        let spec = Spec { sizes: Sizes::Fixed { bytes: 4097 }, granule: 4096, ..spec() };
        assert_eq!(spec.size(0), 8192);
    }

    #[test]
    fn workers_share_all_files() {
        let spec = Spec { files: 11, workers: 4, ..spec() };
        assert_eq!((0..4).map(|worker| spec.files_of(worker)).collect::<Vec<_>>(), [3, 3, 3, 2]);
    }
}

// What ends a storm before its time.

/// What went wrong, as the document tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{phase}: {operation} {}: {reason}", path.display())]
pub struct StormError {
    pub phase: &'static str,
    pub operation: &'static str,
    pub path: PathBuf,
    #[serde(flatten)]
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The kernel refused it.
    #[error("{} ({:?})", .0.desc(), .0)]
    #[serde(serialize_with = "errno_name")]
    Errno(Errno),
    /// The file system gave back something else than it was given.
    #[error("{0}")]
    Mismatch(String),
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

fn errno_name<S: Serializer>(errno: &Errno, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{errno:?}"))
}
