//! Directories whose files need not be read again, for nobody has written to them: attributes of sysfs, by the hundred.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// Directories that are watched, at most: each takes a file descriptor.
const MOST: usize = 64;
/// Batches of events that are taken at a time, at most: who writes without an end has changed them anyway.
const BATCHES: usize = 16;

static WATCHED: Mutex<BTreeMap<String, Watch>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Watch {
    inotify: Inotify,
    directory: Option<WatchDescriptor>,
}

/// Whether somebody may have written to a file of this directory, or replaced it, since this was last asked of it.
///
/// The first time somebody may, and also where the kernel can't say. What it changes by itself, it does not tell.
pub fn may_have_changed(path: &str) -> bool {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = look(&mut watched, path);
    if found.is_err() {
        watched.remove(path);
    }
    found.unwrap_or(true)
}

fn look(watched: &mut BTreeMap<String, Watch>, path: &str) -> nix::Result<bool> {
    if !watched.contains_key(path) {
        if watched.len() == MOST {
            return Err(Errno::EMFILE);
        }
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        watched.insert(path.into(), Watch { inotify, directory: None });
    }
    let Some(watch) = watched.get_mut(path) else { return Ok(true) };
    let kinds = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE;
    // A directory keeps its number; one that was removed, as by unloading a module, and made again, gets another.
    let directory = watch.inotify.add_watch(path, kinds | AddWatchFlags::IN_ONLYDIR)?;
    let before = watch.directory.replace(directory);
    let mut changed = before != Some(directory);
    if let Some(gone) = before.filter(|_| changed) {
        let _ = watch.inotify.rm_watch(gone);
    }
    for _ in 0..BATCHES {
        match watch.inotify.read_events() {
            Ok(events) => changed |= !events.is_empty(),
            Err(Errno::EAGAIN) => return Ok(changed),
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}
