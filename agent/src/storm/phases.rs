//! The phases in their order: in each, all workers begin at once, and the next waits for the last of them.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::syncfs;

use super::latency::Tally;
use super::report::{PhaseReport, Report, Step};
use super::spec::{Phase, Spec};
use super::spec::{Reason, StormError};
use super::worker::Worker;
use crate::clock;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Does all phases. What was done before one failed is in `report` all the same.
pub fn storm(spec: &Spec, report: &mut Report) -> Result<(), StormError> {
    Storm { spec, report, existing: (0..spec.workers).map(|worker| spec.files_of(worker)).collect() }.run()
}

struct Storm<'a> {
    spec: &'a Spec,
    report: &'a mut Report,
    existing: Vec<u64>, // how many files of each worker there are: always its first ones
}

impl Storm<'_> {
    fn run(&mut self) -> Result<(), StormError> {
        for (at, phase) in self.spec.phases.iter().enumerate() {
            if self.spec.drop_caches && at > 0 {
                self.drop_caches(*phase)?;
            }
            match phase {
                Phase::Create => self.create()?,
                Phase::Delete => self.delete()?,
                _ => self.on_all(*phase).map(drop)?,
            }
        }
        Ok(())
    }

    fn create(&mut self) -> Result<(), StormError> {
        let made = DirBuilder::new().mode(0o755).create(&self.spec.root);
        made.map_err(|error| failed("mkdir", "mkdir", &self.spec.root, &error))?;
        self.on_all(Phase::Mkdir)?;
        let tallies = self.on_all(Phase::Create)?;
        self.existing = tallies.iter().map(|tally| tally.files).collect();
        if self.spec.end_sync { self.sync(Phase::Create) } else { Ok(()) }
    }

    fn delete(&mut self) -> Result<(), StormError> {
        let tallies = self.on_all(Phase::Delete)?;
        if !tallies.iter().any(|tally| tally.limited) {
            self.on_all(Phase::Rmdir)?;
            let gone = fs::remove_dir(&self.spec.root);
            gone.map_err(|error| failed("rmdir", "rmdir", &self.spec.root, &error))?;
        }
        if self.spec.end_sync { self.sync(Phase::Delete) } else { Ok(()) }
    }

    fn on_all(&mut self, phase: Phase) -> Result<Vec<Tally>, StormError> {
        let root = open(&self.spec.root, phase.name())?;
        let (barrier, stop) = (Barrier::new(self.existing.len()), AtomicBool::new(false));
        let work = |worker: usize| {
            // A table of open files of its own, as processes have: or workers would wait for each other's locks.
            let _ = unshare(CloneFlags::CLONE_FILES); // without, it is only slower
            let mut each = Worker::new(self.spec, phase, worker as u64, root.as_fd(), &stop);
            barrier.wait();
            each.work(self.existing[worker])
        };
        let ended: Vec<Result<Tally, StormError>> = thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = (0..self.existing.len())
                .map(|worker| {
                    let spawned = thread::Builder::new().spawn_scoped(scope, move || work(worker));
                    spawned.unwrap_or_else(|error| no_thread(&error))
                })
                .collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).collect() // a panic has aborted
        });
        let tallies = ended.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.report.phases.push(PhaseReport::new(phase, &tallies, self.report.began_ns));
        Ok(tallies)
    }

    /// `syncfs` of what is above the root: the root itself may be gone.
    fn sync(&mut self, after: Phase) -> Result<(), StormError> {
        let above = self.spec.root.parent().unwrap_or(&self.spec.root);
        let folder = open(above, after.name())?;
        let began = clock::monotonic_ns();
        syncfs(&folder).map_err(|errno| failed(after.name(), "syncfs", above, &errno.into()))?;
        self.report.syncs.push(Step::since(after, began, self.report.began_ns));
        Ok(())
    }

    fn drop_caches(&mut self, before: Phase) -> Result<(), StormError> {
        let began = clock::monotonic_ns();
        let root = open(&self.spec.root, before.name())?;
        // What is dirty can't be dropped.
        syncfs(&root).map_err(|errno| failed(before.name(), "syncfs", &self.spec.root, &errno.into()))?;
        let dropped = fs::write(DROP_CACHES, "3\n");
        dropped.map_err(|error| failed(before.name(), "write", Path::new(DROP_CACHES), &error))?;
        self.report.drops.push(Step::since(before, began, self.report.began_ns));
        Ok(())
    }
}

fn open(path: &Path, phase: &'static str) -> Result<File, StormError> {
    File::open(path).map_err(|error| failed(phase, "open", path, &error))
}

fn failed(phase: &'static str, operation: &'static str, path: &Path, error: &io::Error) -> StormError {
    let reason = match error.raw_os_error() {
        Some(number) => Reason::Errno(Errno::from_raw(number)),
        None => Reason::Mismatch(error.to_string()),
    };
    StormError { phase, operation, path: path.to_owned(), reason }
}

/// The workers that were started wait for one that will never come: nothing but the end of the process helps.
fn no_thread(error: &io::Error) -> ! {
    eprintln!("storlab-agent: a worker can't be started: {error}; ask for fewer workers");
    std::process::exit(1)
}
