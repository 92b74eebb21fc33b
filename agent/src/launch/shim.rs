//! The process that becomes the program.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::{dup2_stderr, dup2_stdout, execv, getppid};

use super::program::find_program;
use super::spec::{LaunchSpec, Membership, Report, Step};
use crate::clock::{SECOND, monotonic_ns};
use crate::confine::{self, Entered, Obstacle};
use crate::processes::oom;
use crate::sys::{self, Scheduling, Usage};

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
