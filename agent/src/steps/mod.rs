//! `steps`: small operations on files, a thread of its own for each request, so that one that hangs at a dead server
//! holds up no other.
//!
//! Whoever asks for the removal of something says which of its folders is Storlab's own. Every component of the path
//! is opened by itself, and none of them may be a symbolic link: see [`own`].

pub mod own;
mod simple;
mod tree;
mod watched;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::protocol::{Failure, MAX_CONTENTS, Step, StepResult, Steps};

/// Requests that are carried out at the same time; more wait for one of these to end.
pub const AT_ONCE: usize = 8;
/// No step goes deeper than one directory, or keeps much on its stack.
const STACK: usize = 256 * 1024;

/// Whether a request was stopped.
pub type Stopped = Arc<AtomicBool>;

/// What came of a request.
#[derive(Debug)]
pub struct Outcome {
    /// The request.
    pub id: u64,
    /// One for each step, up to the one that failed, unless others were to be carried out, too.
    pub results: Vec<StepResult>,
    /// Contents and listings, one after the other.
    pub contents: Vec<u8>,
}

/// The threads, from the event loop's side.
#[derive(Debug)]
pub struct StepThreads {
    done: Sender<Outcome>,
    outcomes: Receiver<Outcome>,
    bell: Arc<EventFd>,
}

impl StepThreads {
    /// None is started yet.
    pub fn new() -> io::Result<Self> {
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (done, outcomes) = channel();
        Ok(Self { done, outcomes, bell })
    }

    /// Readable when there are outcomes.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Carries a request out.
    pub fn begin(&self, id: u64, steps: Steps, stopped: Stopped) -> io::Result<()> {
        let (done, bell) = (self.done.clone(), Arc::clone(&self.bell));
        // It ends with the process: nothing waits for a disk that hangs.
        let begun = thread::Builder::new().name("steps".into()).stack_size(STACK).spawn(move || {
            let (results, contents) = carry_out(&steps, &stopped);
            // Where nobody takes it any more, the agent is about to end.
            let _ = done.send(Outcome { id, results, contents }).is_ok() && bell.write(1).is_ok();
        });
        begun.map(drop)
    }

    /// What has been done.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let _ = self.bell.read();
        self.outcomes.try_iter().collect()
    }
}

/// Carries steps out: the results, and the contents that they brought.
pub fn carry_out(steps: &Steps, stopped: &AtomicBool) -> (Vec<StepResult>, Vec<u8>) {
    let (mut results, mut contents) = (Vec::with_capacity(steps.steps.len()), Vec::new());
    let (mut data, mut said) = (steps.data.as_slice(), 0);
    for step in &steps.steps {
        let mut own = &[][..];
        if let Step::Write { size, .. } = step {
            (own, data) = data.split_at_checked(*size).unwrap_or((data, &[]));
        }
        let result = if stopped.load(Ordering::Relaxed) {
            Err(Failure::errno("it was stopped", Errno::ECANCELED))
        } else {
            perform(step, own, stopped, &mut contents)
        };
        let ends = result.is_err() && (!steps.go_on || stopped.load(Ordering::Relaxed));
        let result = result.unwrap_or_else(|failure| StepResult::failed(failure, said));
        said += result.message.as_ref().map_or(0, String::len);
        results.push(result);
        if ends {
            break;
        }
    }
    (results, contents)
}

fn perform(
    step: &Step,
    data: &[u8],
    stopped: &AtomicBool,
    contents: &mut Vec<u8>,
) -> Result<StepResult, Failure> {
    let nothing = |()| StepResult::default();
    match step {
        Step::Look { path } => simple::look(path),
        Step::Mkdir { path, mode, parents } => simple::make_directory(path, *mode, *parents).map(nothing),
        Step::Rmdir { path } => simple::remove_directory(path).map(nothing),
        Step::Unlink { path } => simple::unlink(path).map(nothing),
        Step::Symlink { path, target } => simple::link(path, target).map(nothing),
        Step::Write { path, create, .. } => simple::write(path, data, *create),
        Step::Resize { path, size } => simple::resize(path, *size).map(nothing),
        Step::Own { path, user, group } => simple::give(path, *user, *group).map(nothing),
        Step::OpenUp { path } => simple::open_up(path).map(nothing),
        Step::Sync { path } => simple::sync(path.as_deref()).map(nothing),
        Step::Owned { path, top } => own::find(path, top).map(|owned| found(owned.is_some())),
        Step::Remove { path, top } => tree::remove(path, top, stopped).map(found),
        Step::Read { path, limit } => add(contents, |room| simple::read(path, *limit, room)),
        Step::Readlink { path } => add(contents, |room| simple::read_link(path, room)),
        Step::Names { path, targets } => add(contents, |room| simple::names(path, *targets, room)),
        Step::Contents { path, changed: true } if !watched::may_have_changed(path) => Ok(found(false)),
        Step::Contents { path, .. } => add(contents, |room| simple::contents(path, room)),
        Step::Files { path } => add(contents, |room| tree::files(path, room, stopped)),
    }
}

fn found(there: bool) -> StepResult {
    StepResult { found: Some(there), ..StepResult::default() }
}

/// Adds what a step brings to the contents, of which it is told how many bytes there is room for.
fn add(
    contents: &mut Vec<u8>,
    step: impl FnOnce(usize) -> Result<Vec<u8>, Failure>,
) -> Result<StepResult, Failure> {
    let brought = step(MAX_CONTENTS - contents.len())?;
    contents.extend_from_slice(&brought);
    Ok(StepResult::of_size(brought.len()))
}

/// What is said where a step would bring more than there is room for.
fn too_much() -> Failure {
    Failure::errno(format!("more than the {MAX_CONTENTS} bytes that one request may bring"), Errno::EFBIG)
}
