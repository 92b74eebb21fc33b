//! `steps`: small operations on files, a thread of its own for each request, so that one that hangs at a dead server
//! holds up no other. Programs among them are the event loop's, like all others: a request leaves its thread for them.
//!
//! Whoever asks for the removal of something says which of its folders is Storlab's own. Every component of the path
//! is opened by itself, and none of them may be a symbolic link: see [`own`].

pub mod own;
mod simple;
mod tree;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::protocol::{Event, Failure, MAX_CONTENTS, Program, Step, StepResult, Steps};

/// Requests that are carried out at the same time; more wait for one of these to end.
pub const AT_ONCE: usize = 8;
/// No step goes deeper than one directory, or keeps much on its stack.
const STACK: usize = 256 * 1024;

pub type Stopped = Arc<AtomicBool>;

/// A request, as far as it has been carried out.
#[derive(Debug)]
pub struct Progress {
    pub id: u64,
    /// One for each step, up to the one that failed, unless others were to be carried out, too.
    pub results: Vec<StepResult>,
    /// Contents, listings and what programs printed, one after the other.
    pub contents: Vec<u8>,
    steps: Steps,
    /// Bytes of its data that are written.
    written: usize,
    /// Bytes of messages.
    said: usize,
    ended: bool,
}

#[derive(Debug)]
pub struct StepThreads {
    done: Sender<Progress>,
    outcomes: Receiver<Progress>,
    bell: Arc<EventFd>,
}

impl StepThreads {
    pub fn new() -> io::Result<Self> {
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (done, outcomes) = channel();
        Ok(Self { done, outcomes, bell })
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Carries a request out, up to its next program or its end.
    pub fn begin(&self, mut request: Progress, stopped: Stopped) -> io::Result<()> {
        let (done, bell) = (self.done.clone(), Arc::clone(&self.bell));
        // It ends with the process: nothing waits for a disk that hangs.
        let begun = thread::Builder::new().name("steps".into()).stack_size(STACK).spawn(move || {
            request.advance(&stopped);
            // Where nobody takes it any more, the agent is about to end.
            let _ = done.send(request).is_ok() && bell.write(1).is_ok();
        });
        begun.map(drop)
    }

    /// Those that have come to a program or to their end.
    pub fn outcomes(&self) -> Vec<Progress> {
        let _ = self.bell.read();
        self.outcomes.try_iter().collect()
    }
}

impl Progress {
    pub fn new(id: u64, steps: Steps) -> Self {
        let results = Vec::with_capacity(steps.steps.len());
        Self { id, results, contents: Vec::new(), steps, written: 0, said: 0, ended: false }
    }

    /// Bytes that are still to be written.
    pub fn waiting_bytes(&self) -> usize {
        self.steps.data.len() - self.written
    }

    /// The step that is next; `None` where it has come to its end.
    fn next(&self) -> Option<&Step> {
        self.steps.steps.get(self.results.len()).filter(|_| !self.ended)
    }

    pub fn is_over(&self) -> bool {
        self.next().is_none()
    }

    /// The program that is the next step, where it is one.
    pub fn program(&self) -> Option<&Program> {
        if let Some(Step::Run(program)) = self.next() { Some(program) } else { None }
    }

    /// Carries out what comes before the next program, or the end; of one that was stopped, that is its end.
    pub fn advance(&mut self, stopped: &AtomicBool) {
        while self.program().is_none() || stopped.load(Ordering::Relaxed) {
            let Some(step) = self.next().cloned() else { return };
            let size = if let Step::Write { size, .. } = step { size } else { 0 };
            let rest = self.steps.data.get(self.written..).unwrap_or_default();
            let data = rest.get(..size).unwrap_or(rest);
            let result = if stopped.load(Ordering::Relaxed) {
                Err(Failure::errno("it was stopped", Errno::ECANCELED))
            } else {
                perform(&step, data, stopped, &mut self.contents)
            };
            self.written += data.len();
            let result = result.unwrap_or_else(|failure| StepResult::failed(failure, self.said));
            self.take(result, stopped.load(Ordering::Relaxed));
        }
    }

    /// The program that was the next step has ended so, having printed this to its standard output and error.
    pub fn program_ended(&mut self, outcome: &Event, printed: &[Vec<u8>; 2]) {
        let mut result = StepResult::of_program(outcome, self.said);
        if matches!(outcome, Event::Exit(_)) {
            let [output, errors] = printed.each_ref().map(|text| {
                let room = MAX_CONTENTS - self.contents.len();
                let text = text.get(..room).unwrap_or(text);
                self.contents.extend_from_slice(text);
                text.len() as u64
            });
            result = StepResult { size: Some(output), errors: Some(errors), ..result };
        }
        let stopped = matches!(outcome, Event::Exit(exit) if exit.stopped_by.is_some());
        self.take(result, stopped);
    }

    fn take(&mut self, result: StepResult, stopped: bool) {
        self.ended = result.is_failure() && (!self.steps.go_on || stopped);
        self.said += result.message.as_ref().map_or(0, String::len);
        self.results.push(result);
    }
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
        Step::Contents { path, changed: true } if !own::may_have_changed(path) => Ok(found(false)),
        Step::Contents { path, .. } => add(contents, |room| simple::contents(path, room)),
        Step::Files { path } => add(contents, |room| tree::files(path, room, stopped)),
        // The event loop's, and never a thread's: it would be the parent of what is started.
        Step::Run(_) => Err(Failure::new("a program is not a step of a thread's")),
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
