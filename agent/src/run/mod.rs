//! One run: a program from its launch to its `exit`.
//!
//! ```text
//! Launching ──ready, exec──▶ Running ──first process ends──▶ Emptying ──family is gone──▶ Draining ──▶ finished
//! ```
//!
//! While it is *emptying*, what is left of its family is killed; while it is *draining*, what is left in its pipes
//! goes to the controller.

mod ending;
mod launching;
mod output;
mod stdin;
mod turns;

pub use ending::signal_name;

use std::io::{PipeReader, PipeWriter};
use std::process::ExitStatus;

use nix::sys::signal::Signal;

use crate::launch::{Launched, launch};
use crate::outbox::Outbox;
use crate::perf::Counters;
use crate::poller::{Interest, Part, Poller, Token};
use crate::processes::{Family, RunCgroup};
use crate::protocol::{self, Failure, Survivors};
use crate::sys::Usage;
use output::OutputPipe;
use stdin::StdinPipe;
use turns::Turns;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A `run` request.
    Request(u64),
    /// A `steps` request, which goes on when it has ended.
    Step(u64),
    /// A `facts` request, to print a tool's version.
    Tool { facts: u64, name: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The first process lives, as shim or program.
    Alive,
    /// The first process is dead; others of its family may not be.
    Emptying {
        /// When to look again.
        look_again_at: u64,
        /// When to give up on what the kernel doesn't let die; `None` while the others still have their grace.
        give_up_at: Option<u64>,
    },
    /// All are dead; their output may not be sent yet.
    Draining,
}

#[derive(Debug, Clone, Copy, Default)]
struct Start {
    at_ns: u64,
    late_ns: Option<u64>,
    shim_usage: Usage,
}

/// How the first process ended.
#[derive(Debug, Clone, Copy)]
struct End {
    at_ns: u64,
    status: ExitStatus,
    usage: Usage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoppedBy {
    /// Asked to end: by TERM, or by the signal that the request named.
    Signal(Signal),
    Kill,
}

#[derive(Debug)]
struct Places {
    stdout: protocol::Output,
    stderr: protocol::Output,
    cwd: Option<String>,
}

#[derive(Debug)]
pub struct Run {
    owner: Owner,
    program: String,
    places: Places,
    family: Family,
    stage: Stage,
    report: Option<PipeReader>,
    report_text: Vec<u8>,
    announced: bool,
    /// Its end lets the shim go on, which waits to be counted.
    go: Option<PipeWriter>,
    counters: Option<Counters>,
    stdin: StdinPipe,
    outputs: [OutputPipe; 2],
    captured: [Vec<u8>; 2],
    timeout_ns: Option<u64>,
    grace_ns: u64,
    timeout_at: Option<u64>,
    kill_at: Option<u64>,
    timed_out: bool,
    stopped_by: Option<StoppedBy>,
    /// Only its first process has been asked to end.
    others_unasked: bool,
    failure: Option<Failure>,
    start: Option<Start>,
    end: Option<End>,
    keeps: Survivors,
    survivors: usize,
    turns: Option<Turns>,
    /// The request whose turns ended because the run was stopped.
    turns_given_up: Option<u64>,
}

impl Run {
    /// Starts it. `serial` is its number within the session.
    pub fn begin(
        request: &protocol::Run,
        owner: Owner,
        serial: u64,
        cgroup: Option<RunCgroup>,
        poller: &Poller,
        now: u64,
    ) -> Result<Self, Failure> {
        let Launched { family, report, go, stdin, stdout, stderr } = launch(request, serial, cgroup)?;
        let watch = |pipe: &PipeReader, part| poller.watch(pipe, Token { serial, part }, Interest::Read);
        let watched = watch(&report, Part::Report);
        let begins_at =
            request.start_at_ns.and_then(|at| u64::try_from(at).ok()).unwrap_or_default().max(now);
        let mut run = Self {
            owner,
            program: request.argv[0].clone(),
            places: Places {
                stdout: request.stdout.clone(),
                stderr: request.stderr.clone(),
                cwd: request.cwd.clone(),
            },
            family,
            stage: Stage::Alive,
            report: Some(report),
            report_text: Vec::new(),
            announced: false,
            go,
            counters: None,
            stdin: StdinPipe::new(stdin, Token { serial, part: Part::Stdin }),
            outputs: [
                OutputPipe::new(stdout, Token { serial, part: Part::Stdout }, request.most_output, poller),
                OutputPipe::new(stderr, Token { serial, part: Part::Stderr }, request.most_output, poller),
            ],
            captured: Default::default(),
            timeout_ns: request.timeout_ns,
            grace_ns: request.grace_ns,
            // Counted from here until the real start is known, so that a launch that hangs is ended, too.
            timeout_at: request.timeout_ns.map(|timeout| begins_at.saturating_add(timeout)),
            kill_at: None,
            timed_out: false,
            stopped_by: None,
            others_unasked: false,
            failure: None,
            start: None,
            end: None,
            keeps: request.survivors,
            survivors: 0,
            turns: None,
            turns_given_up: None,
        };
        if let Err(errno) = watched {
            // Out of memory for epoll. The process exists already: it must go before this is answered.
            run.failure = Some(Failure::errno("can't watch the process", errno));
            run.kill(now);
        }
        Ok(run)
    }

    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Did it take too long?
    pub fn has_timed_out(&self) -> bool {
        self.timed_out
    }

    /// Is this process its first one?
    pub fn is_led_by(&self, pid: i32) -> bool {
        self.end.is_none() && self.family.leader().as_raw() == pid
    }

    /// When it has something to do, on `CLOCK_MONOTONIC`.
    pub fn deadline(&self) -> Option<u64> {
        let look_again = match self.stage {
            Stage::Emptying { look_again_at, .. } => Some(look_again_at),
            _ => None,
        };
        let turn = self.turns.as_ref().and_then(Turns::deadline);
        [self.timeout_at, self.kill_at, look_again, turn].into_iter().flatten().min()
    }

    /// What it has to send is sent, and nothing of it is left.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Draining && self.outputs.iter().all(OutputPipe::is_closed)
    }

    /// Puts bytes before its standard input; `request` is answered when the pipe has taken them.
    pub fn feed(&mut self, request: u64, data: Vec<u8>, eof: bool, poller: &Poller, outbox: &mut Outbox) {
        self.stdin.feed(request, data, eof, poller, outbox);
    }

    pub fn on_stdin(&mut self, poller: &Poller, outbox: &mut Outbox) {
        self.stdin.flush(poller, outbox);
    }
}
