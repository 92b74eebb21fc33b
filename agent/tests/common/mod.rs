//! A controller for tests: it starts the real program and speaks to it over pipes.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod confined;

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use storlab_agent::protocol::PREFACE;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_storlab-agent");
/// No test waits longer than this for anything: a guard against hanging, not a demand for speed.
pub const GUARD: Duration = Duration::from_secs(30);

/// One event, as it came.
#[derive(Debug, Clone)]
pub struct Event {
    pub header: Value,
    pub payload: Vec<u8>,
}

impl Event {
    pub fn is(&self, name: &str) -> bool {
        self.header["event"] == name
    }

    pub fn get(&self, field: &str) -> &Value {
        &self.header[field]
    }

    pub fn number(&self, field: &str) -> u64 {
        self.header[field].as_u64().unwrap_or_else(|| panic!("{field} is no number in {}", self.header))
    }

    fn ends(&self, id: u64) -> bool {
        const FINAL: [&str; 9] =
            ["hello", "refused", "clock", "facts", "exit", "turns", "steps", "done", "error"];
        self.header["id"] == id && FINAL.iter().any(|name| self.is(name))
    }
}

/// An agent and the streams to it.
pub struct Agent {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    pub stdout: ChildStdout,
    pub last_id: u64,
    waiting: VecDeque<Event>,
}

impl Agent {
    /// Started, and greeted.
    pub fn start() -> Self {
        Self::start_command(Command::new(PROGRAM).arg("serve"))
    }

    pub fn start_command(command: &mut Command) -> Self {
        let mut agent = Self::spawn(command);
        agent.write(PREFACE);
        let hello = agent.ask(json!({"op": "hello", "protocol": 1, "version": "test"}));
        assert!(hello[0].is("hello"), "{hello:?}");
        agent
    }

    /// Started; its own greeting has been read, none has been sent.
    pub fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = loop {
            match command.spawn() {
                // A copy that a test made of it: another test's fork holds that open for writing until it executes.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    thread::sleep(Duration::from_millis(10));
                }
                spawned => break spawned.unwrap(),
            }
        };
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut agent = Self { child, stdin, stdout, last_id: 0, waiting: VecDeque::new() };
        assert_eq!(agent.read_exactly(16), PREFACE);
        let hello = agent.read_event();
        assert!(hello.is("hello") && hello.get("id") == 0, "{hello:?}");
        agent
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub fn send(&mut self, request: Value) -> u64 {
        self.send_with(request, &[])
    }

    pub fn send_with(&mut self, mut request: Value, payload: &[u8]) -> u64 {
        self.last_id += 1;
        request["id"] = self.last_id.into();
        self.write(&frame(&request, payload));
        self.last_id
    }

    /// Sends a request and gives all its events, the final one last.
    pub fn ask(&mut self, request: Value) -> Vec<Event> {
        let id = self.send(request);
        self.finish(id)
    }

    /// The final event of a request.
    pub fn ask_final(&mut self, request: Value) -> Event {
        self.ask(request).pop().unwrap()
    }

    /// The remaining events of a request, up to its final one.
    pub fn finish(&mut self, id: u64) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.next_of(id);
            let ends = event.ends(id);
            events.push(event);
            if ends {
                return events;
            }
        }
    }

    pub fn finish_last(&mut self, id: u64) -> Event {
        self.finish(id).pop().unwrap()
    }

    /// The next event of a request; those of others are kept.
    pub fn next_of(&mut self, id: u64) -> Event {
        if let Some(index) = self.waiting.iter().position(|event| event.header["id"] == id) {
            return self.waiting.remove(index).unwrap();
        }
        loop {
            let event = self.read_event();
            if event.header["id"] == id {
                return event;
            }
            self.waiting.push_back(event);
        }
    }

    /// Starts a run and waits for its `started`.
    pub fn start_run(&mut self, request: Value) -> (u64, Event) {
        let id = self.send(request);
        let event = self.next_of(id);
        assert!(event.is("started"), "{event:?}");
        (id, event)
    }

    pub fn read_event(&mut self) -> Event {
        let length = u32::from_be_bytes(self.read_exactly(4).try_into().unwrap()) as usize;
        let body = self.read_exactly(length);
        let header_length = usize::from(u16::from_be_bytes([body[0], body[1]]));
        let header = serde_json::from_slice(&body[2..2 + header_length]).unwrap();
        Event { header, payload: body[2 + header_length..].to_vec() }
    }

    pub fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let mut have = 0;
        while have < count {
            let mut fds = [PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::try_from(GUARD).unwrap()).unwrap();
            assert!(ready > 0, "the agent is silent");
            let read = self.stdout.read(&mut bytes[have..]).unwrap();
            assert!(read > 0, "the agent has closed the stream");
            have += read;
        }
        bytes
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Greatest resident memory so far, in KiB.
    pub fn peak_memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Closes the stream and waits for the agent's end.
    pub fn close(mut self) -> ExitStatus {
        self.stdin = None;
        self.await_exit()
    }

    pub fn await_exit(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the agent ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub fn await_code(&mut self) -> Option<i32> {
        let status = self.await_exit();
        assert_eq!(status.signal(), None, "the agent was killed or has panicked");
        status.code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stdin = None;
        // It kills its runs and removes its cgroups when the stream closes; a test that fails shall leave none.
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn frame(header: &Value, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    storlab_agent::protocol::encode(&mut bytes, header.to_string().as_bytes(), payload).unwrap();
    bytes
}

/// A shell that does this.
pub fn sh(script: &str) -> Value {
    json!({"op": "run", "argv": ["/bin/sh", "-c", script]})
}

/// Adds fields to a request.
pub fn with(mut request: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        request[name] = value.clone();
    }
    request
}

pub fn output(events: &[Event], name: &str) -> String {
    let bytes: Vec<u8> =
        events.iter().filter(|event| event.is(name)).flat_map(|event| event.payload.clone()).collect();
    String::from_utf8(bytes).unwrap()
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + GUARD;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Is there such a process, and not as a zombie?
pub fn lives(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}

/// Waits for a file that holds a process's number.
pub fn read_pid(path: &Path) -> i32 {
    let mut pid = None;
    wait_until("a process writes its number", || {
        pid = fs::read_to_string(path)
            .ok()
            .filter(|text| text.ends_with('\n'))
            .and_then(|text| text.trim().parse().ok());
        pid.is_some()
    });
    pid.unwrap()
}

pub fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

pub fn is_root() -> bool {
    nix::unistd::getuid().is_root()
}

/// A directory that goes with its test.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("storlab-agent-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An agent that may make no cgroups: it isn't root.
pub fn agent_without_cgroups(directory: &Directory) -> Agent {
    let mut command = if is_root() {
        let program = directory.path("storlab-agent");
        // Not by fs::copy: a process that another test starts meanwhile would hold the copy open for writing.
        assert!(Command::new("cp").args([PROGRAM.as_ref(), program.as_path()]).status().unwrap().success());
        fs::set_permissions(&directory.0, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let mut command = Command::new(program);
        command.uid(65_534).gid(65_534);
        command
    } else {
        Command::new(PROGRAM)
    };
    Agent::start_command(command.arg("serve").current_dir("/"))
}
