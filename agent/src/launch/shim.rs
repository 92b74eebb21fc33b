//! The process that becomes the program.

use crate::clock::{SECOND, monotonic_ns};
use crate::confine::{Confinement, Entered, Obstacle};
use crate::processes::oom;
use crate::sys::{Scheduling, Usage};
use crate::{confine, sys};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::{AccessFlags, access, dup2_stderr, dup2_stdout, execv, getppid};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Sleeping ends late by a wake-up, some tens of microseconds; the rest is spent spinning.
const SPIN_NS: u64 = 150_000;

/// Prepares, waits, and becomes the program. Returns only where that fails.
pub fn become_program(spec: &str, argv: &[OsString]) -> ExitCode {
    let Ok(spec) = serde_json::from_str::<LaunchSpec>(spec) else { return ExitCode::from(2) };
    let Ok(report) = sys::adopt_inherited(spec.report_fd) else { return ExitCode::from(2) };
    let Ok(go) = spec.go_fd.map(sys::adopt_inherited).transpose() else { return ExitCode::from(2) };
    let mut report = File::from(report);
    match prepare_and_execute(&spec, argv, &mut report, go.map(File::from)) {
        Ok(never) => match never {},
        Err(Stopped::AgentGone) => ExitCode::FAILURE,
        Err(Stopped::Failed(step, errno)) => {
            tell(&mut report, &Report::Failed { step, errno: errno as i32 });
            ExitCode::from(127)
        }
        Err(Stopped::Unconfined(obstacle)) => {
            tell(&mut report, &Report::Unconfined { why: obstacle.to_string() });
            ExitCode::from(127)
        }
    }
}

enum Stopped {
    AgentGone,
    Failed(Step, Errno),
    Unconfined(Obstacle),
}

fn at(step: Step) -> impl Fn(Errno) -> Stopped {
    move |errno| Stopped::Failed(step, errno)
}

fn prepare_and_execute(
    spec: &LaunchSpec,
    argv: &[OsString],
    report: &mut File,
    go: Option<File>,
) -> Result<Infallible, Stopped> {
    // Is kept across exec. It is bound to the agent's thread that started this process, its main thread.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    if getppid().as_raw() != spec.agent {
        return Err(Stopped::AgentGone); // it died before the line above
    }
    let in_cgroup = match &spec.cgroup {
        None => false,
        Some(Membership::Born) => true,
        Some(Membership::Join(cgroup)) => join_cgroup(cgroup).is_ok(),
    };
    oom::do_not_inherit();
    sys::inherit_standard_streams_only();
    sys::reset_signal_actions();
    let _ = SigSet::empty().thread_set_mask();
    redirect(spec)?;
    let entered = spec.confine.as_ref().map(confine::enter).transpose().map_err(Stopped::Unconfined)?;
    let confined = entered.as_ref().map(|entered| entered.confined);
    let Entered { number, used, .. } = entered.unwrap_or_default();
    if let Some(directory) = &spec.cwd {
        nix::unistd::chdir(directory.as_str()).map_err(at(Step::Directory))?;
    }
    let program = find_program(&argv[0], std::env::var_os("PATH").as_deref()).map_err(at(Step::Execute))?;
    nix::unistd::access(&program, nix::unistd::AccessFlags::X_OK).map_err(at(Step::Execute))?;
    let program = c_string(program.as_os_str().as_bytes())?;
    let argv = argv.iter().map(|argument| c_string(argument.as_bytes())).collect::<Result<Vec<_>, _>>()?;

    tell(report, &Report::Ready { in_cgroup, confined, number });
    if let Some(mut go) = go {
        let _ = go.read(&mut [0]); // it ends
    }
    let scheduling =
        spec.start_at_ns.and_then(|instant| wait_until(u64::try_from(instant).unwrap_or_default()));
    let Usage { user_ns, system_ns, .. } = used + sys::own_usage();
    let start_ns = monotonic_ns();
    let late_ns = spec.start_at_ns.map(|at| start_ns.saturating_sub(u64::try_from(at).unwrap_or_default()));
    tell(report, &Report::Executing { start_ns, late_ns, user_ns, system_ns });
    if let Some(before) = scheduling {
        sys::schedule_as(before); // the program would inherit it
    }
    execv(&program, &argv).map_err(at(Step::Execute))
}

fn join_cgroup(cgroup: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(format!("{cgroup}/cgroup.procs"))?.write_all(b"0")
}

fn redirect(spec: &LaunchSpec) -> Result<(), Stopped> {
    let stdout = spec.stdout_file.as_deref().map(|path| create(path, Step::Stdout)).transpose()?;
    if let Some(file) = &stdout {
        dup2_stdout(file).map_err(at(Step::Stdout))?;
    }
    if let Some(path) = &spec.stderr_file {
        // Opened twice, one file would be overwritten by two writers that don't know each other's position.
        let shared = stdout.filter(|_| spec.stdout_file.as_ref() == Some(path));
        let file = shared.map_or_else(|| create(path, Step::Stderr), Ok)?;
        dup2_stderr(file).map_err(at(Step::Stderr))?;
    }
    Ok(())
}

fn create(path: &str, step: Step) -> Result<File, Stopped> {
    File::create(path).map_err(|error| Stopped::Failed(step, errno_of(&error)))
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw)
}

fn c_string(bytes: &[u8]) -> Result<CString, Stopped> {
    CString::new(bytes).map_err(|_| Stopped::Failed(Step::Execute, Errno::EINVAL))
}

/// Sleeps, and spins at the end. What else runs on the node must not delay the start: the process gets a real-time
/// priority for the meantime, where it may, and what it had before is given back.
fn wait_until(instant: u64) -> Option<Scheduling> {
    let wake = instant.saturating_sub(SPIN_NS);
    let mut scheduling = None;
    if monotonic_ns() < wake {
        scheduling = sys::schedule_first();
        // The default of 50 µs would let the kernel wake us later. 0 restores it: the program would inherit it.
        let _ = prctl::set_timerslack(1);
        let time = TimeSpec::new((wake / SECOND) as i64, (wake % SECOND) as i64);
        while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &time)
            == Err(Errno::EINTR)
        {}
        let _ = prctl::set_timerslack(0);
    }
    while monotonic_ns() < instant {
        std::hint::spin_loop();
    }
    scheduling
}

fn tell(report: &mut File, what: &Report) {
    if let Ok(mut line) = serde_json::to_vec(what) {
        line.push(b'\n');
        // Shorter than PIPE_BUF, so it is written whole. Without an agent to read it nothing matters any more.
        let _ = report.write_all(&line);
    }
}

// What the agent tells the shim, and what the shim tells the agent.

/// What the shim has to do, given to it as JSON on its command line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The pipe for [`Report`]s.
    pub report_fd: i32,
    /// The agent's number: a shim whose parent is another has lost its agent.
    pub agent: i32,
    /// How it comes to be in the run's cgroup, where there is one.
    pub cgroup: Option<Membership>,
    /// What alone it may write to.
    pub confine: Option<Confinement>,
    pub cwd: Option<String>,
    pub stdout_file: Option<String>,
    pub stderr_file: Option<String>,
    /// A pipe whose end it waits for, once it is ready: only then are its counters open.
    pub go_fd: Option<i32>,
    /// When to become the program, on `CLOCK_MONOTONIC`.
    pub start_at_ns: Option<i64>,
}

/// How a process comes to be in a cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Membership {
    /// It has been in it from its first instant.
    Born,
    /// It moves into this directory, for which the kernel lets it wait until every CPU has passed by (RCU).
    Join(String),
}

/// What the shim tells, one JSON object a line. The end of the pipe after `Executing` means that the program runs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    Ready {
        in_cgroup: bool,
        /// It is confined; `None` where that wasn't asked for.
        confined: Option<bool>,
        /// The number of the process that becomes the program, where it is not the first.
        number: Option<i32>,
    },
    Executing {
        /// Now, on `CLOCK_MONOTONIC`.
        start_ns: u64,
        /// How long after the agreed instant.
        late_ns: Option<u64>,
        /// What the shim itself has used in user mode, which isn't the program's.
        user_ns: u64,
        /// What the shim itself has used in the kernel.
        system_ns: u64,
    },
    /// It can't be done.
    Failed {
        /// What can't.
        step: Step,
        errno: i32,
    },
    /// It can't be confined.
    Unconfined { why: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Stdout,
    Stderr,
    Directory,
    Execute,
}

// Which file a program's name means. Source: `execvp(3)`, except that a file that is neither a binary nor begins
// with `#!` isn't given to a shell, and that a directory without permission to search holds nothing.

/// Where programs are looked for if the environment doesn't say: an agent that a VM's init started may have none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The file that `name` means under this search path.
pub fn find_program(name: &OsStr, search_path: Option<&OsStr>) -> Result<PathBuf, Errno> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    let mut error = Errno::ENOENT;
    for directory in std::env::split_paths(search_path.unwrap_or(DEFAULT_PATH.as_ref())) {
        // An empty entry means the working directory, as for a shell.
        let file = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory }.join(name);
        match access(&file, AccessFlags::X_OK) {
            Ok(()) if file.is_file() => return Ok(file),
            // A file that is there but can't be executed is the better explanation, unless another is found. A
            // directory that may not be searched is none: execvp takes it for one.
            _ if file.exists() => error = Errno::EACCES,
            _ => {}
        }
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_given_path_only() {
        assert_eq!(find_program("sh".as_ref(), Some("/nowhere:/bin".as_ref())), Ok("/bin/sh".into()));
        assert_eq!(find_program("sh".as_ref(), Some("/nowhere".as_ref())), Err(Errno::ENOENT));
        assert!(find_program("sh".as_ref(), None).is_ok());
    }

    #[test]
    fn a_file_without_permission_to_execute_is_told_from_none() {
        assert_eq!(find_program("passwd".as_ref(), Some("/etc".as_ref())), Err(Errno::EACCES));
    }

    #[test]
    fn a_name_with_a_slash_is_not_looked_for() {
        assert_eq!(find_program("./x".as_ref(), None), Ok("./x".into()));
        assert_eq!(find_program("".as_ref(), None), Err(Errno::ENOENT));
    }
}
