//! Names of files and directories, computed from their numbers.
//!
//! `w1/d03/d17/f42`: the tree of worker 1, a directory on each level, file 42. A shared tree has no `w1`.

use std::fmt::Write;

use super::spec::{Spec, Spread};

/// The tree of one worker, or the one that all share.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    spec: &'a Spec,
    worker: u64,
    leaves: u64,
}

impl<'a> Tree<'a> {
    pub fn of(spec: &'a Spec, worker: u64) -> Self {
        Self { spec, worker, leaves: spec.tree.leaves().unwrap_or(1) }
    }

    /// The number among all files of this worker's `own`-th.
    pub fn file(&self, own: u64) -> u64 {
        own * self.spec.workers + self.worker
    }

    /// The directory of this worker's `own`-th file, by number among those with files.
    pub fn leaf(&self, own: u64) -> u64 {
        let (place, places) = if self.spec.tree.shared {
            (self.file(own), self.spec.files)
        } else {
            (own, self.spec.files_of(self.worker))
        };
        match self.spec.tree.spread {
            Spread::RoundRobin => place % self.leaves,
            Spread::Sequential => (u128::from(place) * u128::from(self.leaves) / u128::from(places)) as u64,
        }
    }

    /// Writes the path of a directory with files, below the root; "." where the root itself has them.
    pub fn directory_path(&self, leaf: u64, path: &mut String) {
        self.path_on(self.spec.tree.depth, leaf, path);
    }

    /// Writes the path of the `own`-th file, below the root.
    pub fn file_path(&self, own: u64, path: &mut String) {
        self.directory_path(self.leaf(own), path);
        let _ = write!(path, "/f{}", self.file(own)); // to a string: can't fail
    }

    /// Calls `visit` with each directory that this worker makes, those above before those below. Of a shared tree
    /// the first worker makes all.
    pub fn directories<E>(&self, mut visit: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.levels().try_for_each(|level| self.on_level(level, &mut visit))
    }

    pub fn directories_upwards<E>(&self, mut visit: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.levels().rev().try_for_each(|level| self.on_level(level, &mut visit))
    }

    fn levels(&self) -> std::ops::RangeInclusive<u32> {
        let (shared, depth) = (self.spec.tree.shared, self.spec.tree.depth);
        let none = shared && self.worker > 0;
        u32::from(shared)..=if none { 0 } else { depth }
    }

    fn on_level<E>(&self, level: u32, visit: &mut impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let mut path = String::new();
        (0..self.spec.tree.fan_out.pow(level)).try_for_each(|number| {
            self.path_on(level, number, &mut path);
            visit(&path)
        })
    }

    fn path_on(&self, level: u32, number: u64, path: &mut String) {
        path.clear();
        if self.spec.tree.shared {
            path.push('.');
        } else {
            let _ = write!(path, "w{}", self.worker);
        }
        for above in (0..level).rev() {
            let step = number / self.spec.tree.fan_out.pow(above) % self.spec.tree.fan_out;
            let _ = write!(path, "/d{step}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;
    use crate::storm::spec::tests::{spec, tree};

    fn all_files(spec: &Spec) -> Vec<String> {
        let mut path = String::new();
        let mut paths = Vec::new();
        for worker in 0..spec.workers {
            let tree = Tree::of(spec, worker);
            for own in 0..spec.files_of(worker) {
                tree.file_path(own, &mut path);
                paths.push(path.clone());
            }
        }
        paths
    }

    fn all_directories(spec: &Spec) -> Vec<String> {
        let mut paths = Vec::new();
        for worker in 0..spec.workers {
            let visited = Tree::of(spec, worker).directories(|path| {
                paths.push(path.to_owned());
                Ok::<_, Infallible>(())
            });
            assert!(visited.is_ok());
        }
        paths
    }

    fn parent(path: &str) -> &str {
        path.rsplit_once('/').unwrap().0
    }

    proptest! {
        #[test]
        fn each_file_has_a_name_of_its_own_in_a_directory_that_is_made(
            files in 1_u64..300, workers in 1_u64..5, depth in 0_u32..3, fan_out in 1_u64..6, shared: bool, robin: bool,
        ) {
            let spread = if robin { Spread::RoundRobin } else { Spread::Sequential };
            let spec = Spec { files, workers, tree: tree(depth, fan_out, shared, spread), ..spec() };
            let paths = all_files(&spec);
            let directories: BTreeSet<String> = all_directories(&spec).into_iter().chain([".".into()]).collect();
            prop_assert_eq!(paths.iter().collect::<BTreeSet<_>>().len() as u64, files);
            prop_assert!(paths.iter().all(|path| directories.contains(parent(path))), "{:?} {:?}", paths, directories);
        }

        #[test]
        fn directories_get_equal_shares(files in 1_u64..300, fan_out in 1_u64..20, robin: bool) {
            let spread = if robin { Spread::RoundRobin } else { Spread::Sequential };
            let spec = Spec { files, workers: 1, tree: tree(1, fan_out, false, spread), ..spec() };
            let mut shares: BTreeMap<String, u64> = BTreeMap::new();
            for path in all_files(&spec) {
                *shares.entry(parent(&path).to_owned()).or_default() += 1;
            }
            prop_assert!(shares.values().all(|share| (files / fan_out..=files.div_ceil(fan_out)).contains(share)));
        }
    }

    #[test]
    fn a_directory_comes_after_the_one_above_it_and_upwards_before_it() {
        let spec = Spec { workers: 1, tree: tree(2, 2, false, Spread::Sequential), ..spec() };
        let down = ["w0", "w0/d0", "w0/d1", "w0/d0/d0", "w0/d0/d1", "w0/d1/d0", "w0/d1/d1"];
        assert_eq!(all_directories(&spec), down);
        let mut up = Vec::new();
        let visited = Tree::of(&spec, 0).directories_upwards(|path| {
            up.push(path.to_owned());
            Ok::<_, Infallible>(())
        });
        assert!(visited.is_ok());
        assert_eq!(up.len(), down.len());
        assert_eq!(up.last().map(String::as_str), Some("w0"));
    }

    #[test]
    fn of_a_shared_tree_the_first_worker_makes_all() {
        let spec = Spec { workers: 3, tree: tree(1, 2, true, Spread::Sequential), ..spec() };
        assert_eq!(all_directories(&spec), ["./d0", "./d1"]);
    }
}
