//! The agent's side of a launch.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;

use super::shim::{LaunchSpec, Membership};
use crate::processes::{Family, MARKER, RunCgroup};
use crate::protocol::{Failure, Output, Run, StdinKind};
use crate::stream::set_nonblocking;
use crate::sys;

const ARG0: &str = "storlab-agent";

/// A process that is on its way to become the program. All pipes are non-blocking on this side.
#[derive(Debug)]
pub struct Launched {
    /// It and all that will descend from it.
    pub family: Family,
    pub report: PipeReader,
    /// What holds it back until it is dropped, where it is to be counted.
    pub go: Option<PipeWriter>,
    /// Its standard input, where that is a stream.
    pub stdin: Option<PipeWriter>,
    /// Its standard output, where that is a stream.
    pub stdout: Option<PipeReader>,
    /// Its standard error, where that is a stream.
    pub stderr: Option<PipeReader>,
}

/// Starts the shim. Must be called from the main thread, whose death is the parent's death for the shim.
pub fn launch(run: &Run, serial: u64, cgroup: Option<RunCgroup>) -> Result<Launched, Failure> {
    check(run)?;
    let path = cgroup.as_ref().and_then(|cgroup| cgroup.path().to_str());
    let result = match &run.stdin {
        StdinKind::File(file) => open_input(file)
            .map_err(|error| Failure::io(format!("can't open {file:?} for the standard input"), &error))
            .and_then(|input| spawn(run, serial, path, Some(input))),
        StdinKind::None | StdinKind::Stream => spawn(run, serial, path, None),
    };
    match result {
        Ok(mut launched) => {
            launched.family = Family::new(launched.family.leader(), serial, cgroup);
            Ok(launched)
        }
        Err(failure) => {
            if let Some(cgroup) = cgroup {
                cgroup.remove();
            }
            Err(failure)
        }
    }
}

/// Refuses what the system could not represent.
fn check(run: &Run) -> Result<(), Failure> {
    if run.argv.is_empty() {
        return Err(Failure::errno("argv is empty", Errno::EINVAL));
    }
    for (name, value) in &run.env {
        if name.is_empty() || name.contains('=') {
            return Err(Failure::errno(format!("{name:?} can't name a variable"), Errno::EINVAL));
        }
        if value.as_ref().is_some_and(|value| value.contains('\0')) {
            return Err(Failure::errno(format!("the variable {name:?} contains a NUL"), Errno::EINVAL));
        }
    }
    let file = |output: &Output| if let Output::File(path) = output { Some(path.clone()) } else { None };
    let input = if let StdinKind::File(path) = &run.stdin { Some(path.clone()) } else { None };
    let paths = [run.cwd.clone(), input, file(&run.stdout), file(&run.stderr)];
    let mut strings = run.argv.iter().chain(run.env.keys()).chain(paths.iter().flatten());
    match strings.find(|string| string.contains('\0')) {
        Some(string) => Err(Failure::errno(format!("{string:?} contains a NUL"), Errno::EINVAL)),
        None => Ok(()),
    }
}

fn spawn(run: &Run, serial: u64, cgroup: Option<&str>, input: Option<File>) -> Result<Launched, Failure> {
    spawn_shim(run, serial, cgroup, input)
        .map_err(|error| Failure::io(format!("can't start a process for {:?}", run.argv[0]), &error))
}

fn spawn_shim(run: &Run, serial: u64, cgroup: Option<&str>, input: Option<File>) -> io::Result<Launched> {
    let (report, report_end) = io::pipe()?;
    set_nonblocking(&report)?;
    let (go_end, go) =
        if run.count { io::pipe().map(|(end, go)| (Some(end), Some(go)))? } else { (None, None) };
    let (stdin, stdin_end) = match (input, &run.stdin) {
        (Some(file), _) => (None, OwnedFd::from(file)),
        (None, StdinKind::None | StdinKind::File(_)) => (None, nothing()?),
        (None, StdinKind::Stream) => {
            let (reader, writer) = io::pipe()?;
            set_nonblocking(&writer)?;
            (Some(writer), reader.into())
        }
    };
    let (stdout, stdout_end, stdout_file) = output(&run.stdout)?;
    let (stderr, stderr_end, stderr_file) = output(&run.stderr)?;
    let spec = LaunchSpec {
        report_fd: report_end.as_raw_fd(),
        agent: std::process::id() as i32,
        cgroup: cgroup.map(|path| Membership::Join(path.into())),
        confine: run.confine.clone(),
        cwd: run.cwd.clone(),
        stdout_file,
        stderr_file,
        go_fd: go_end.as_ref().map(AsRawFd::as_raw_fd),
        start_at_ns: run.start_at_ns,
    };
    // No other thread of the agent starts processes, so none can inherit it by accident.
    fcntl(&report_end, FcntlArg::F_SETFD(FdFlag::empty()))?;
    if let Some(end) = &go_end {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    let born =
        cgroup.map(|path| spawn_into(path, &spec, run, serial, [&stdin_end, &stdout_end, &stderr_end]));
    let pid = match born {
        Some(Ok(pid)) => pid,
        // A kernel before 5.7, a filter that forbids it, or a cgroup that takes no process: the shim will say.
        _ => {
            let mut command = command(&spec, run, serial)?;
            command.stdin(stdin_end).stdout(stdout_end).stderr(stderr_end).process_group(0);
            // Dropping a Child neither kills nor reaps it; the session does both.
            Pid::from_raw(command.spawn()?.id() as i32)
        }
    };
    Ok(Launched { family: Family::new(pid, serial, None), report, go, stdin, stdout, stderr })
}

/// A shim that is in the run's cgroup from its first instant.
fn spawn_into(
    cgroup: &str,
    spec: &LaunchSpec,
    run: &Run,
    serial: u64,
    streams: [&OwnedFd; 3],
) -> io::Result<Pid> {
    let cgroup = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(cgroup)?;
    let command = command(&LaunchSpec { cgroup: Some(Membership::Born), ..spec.clone() }, run, serial)?;
    let image = sys::Image::of(&command, ARG0, streams.map(OwnedFd::as_fd))?;
    Ok(sys::spawn_into(cgroup.as_fd(), &image)?)
}

fn command(spec: &LaunchSpec, run: &Run, serial: u64) -> io::Result<Command> {
    // The file itself, even if it has been replaced or deleted since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(ARG0).arg("launch").arg(serde_json::to_string(spec)?).args(&run.argv);
    for (name, value) in &run.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env(MARKER, Family::marker(serial));
    Ok(command)
}

/// Opening a named pipe would wait for who writes to it; for a regular file the flag means nothing.
fn open_input(path: &str) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::EINVAL.into()) }
}

fn output(output: &Output) -> io::Result<(Option<PipeReader>, OwnedFd, Option<String>)> {
    Ok(match output {
        Output::Stream => {
            let (reader, writer) = io::pipe()?;
            set_nonblocking(&reader)?;
            (Some(reader), writer.into(), None)
        }
        Output::Discard => (None, nothing()?, None),
        Output::File(path) => (None, nothing()?, Some(path.clone())),
    })
}

fn nothing() -> io::Result<OwnedFd> {
    Ok(OpenOptions::new().read(true).write(true).open("/dev/null")?.into())
}
