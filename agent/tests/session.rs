//! The session: greeting, clock, refusals, and all the ways in which it ends.

mod common;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::{Agent, PROGRAM, frame, lives, sh, signal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use storlab_agent::protocol::PREFACE;

#[test]
fn the_version_is_printed_with_the_protocols() {
    let output = Command::new(PROGRAM).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "storlab-agent 0.1.0 (protocol 1)\n");
}

#[test]
fn a_wrong_command_line_is_explained() {
    for arguments in [&["serve", "--cgroup", "../x"][..], &["srve"], &[]] {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr).unwrap().contains("usage:"));
    }
}

#[test]
fn the_agent_says_who_it_is() {
    let mut agent = Agent::start();
    let hello = agent.ask_final(json!({"op": "hello", "protocol": 1, "version": "x"}));
    assert_eq!(hello.number("protocol"), 1);
    assert_eq!(hello.number("pid"), u64::from(agent.child.id()));
    assert_eq!(hello.get("boot_id").as_str().unwrap().len(), 36);
    assert!(hello.get("hostname").is_string() && hello.get("version").is_string());
}

#[test]
fn another_protocol_is_refused() {
    let mut agent = Agent::spawn(Command::new(PROGRAM).arg("serve"));
    agent.write(PREFACE);
    let refused = agent.ask_final(json!({"op": "hello", "protocol": 2, "version": "x"}));
    assert!(refused.is("refused") && refused.get("message").is_string(), "{refused:?}");
    assert_eq!(agent.await_code(), Some(3));
}

#[test]
fn nothing_is_served_before_hello() {
    let mut agent = Agent::spawn(Command::new(PROGRAM).arg("serve"));
    agent.write(PREFACE);
    assert!(agent.ask_final(json!({"op": "clock"})).is("error"));
    assert!(agent.ask_final(json!({"op": "hello", "protocol": 1})).is("hello"));
    assert!(agent.ask_final(json!({"op": "clock"})).is("clock"));
}

#[test]
fn a_consoles_greeting_is_skipped() {
    let mut agent = Agent::spawn(Command::new(PROGRAM).arg("serve"));
    agent.write(b"Debian GNU/Linux 12 vm ttyS0\r\n\r\nvm login: storlab-ag");
    agent.write(PREFACE);
    assert!(agent.ask_final(json!({"op": "hello", "protocol": 1})).is("hello"));
}

#[test]
fn the_clock_goes_forward() {
    let mut agent = Agent::start();
    let first = agent.ask_final(json!({"op": "clock"}));
    let second = agent.ask_final(json!({"op": "clock"}));
    assert!(second.number("monotonic_ns") > first.number("monotonic_ns"));
    assert!(second.number("realtime_ns") > 1_700_000_000_000_000_000);
}

#[test]
fn a_request_that_can_not_be_served_is_answered_and_the_session_goes_on() {
    let mut agent = Agent::start();
    for request in [
        json!({"op": "dance"}),
        json!({}),
        json!({"op": 5}),
        json!({"op": "run"}),
        json!({"op": "run", "argv": "ls"}),
        json!({"op": "run", "argv": []}),
        json!({"op": "run", "argv": ["a\u{0}b"]}),
        json!({"op": "run", "argv": ["ls"], "env": {"A=B": "c"}}),
        json!({"op": "run", "argv": ["ls"], "timeout_ns": -1}),
        json!({"op": "run", "argv": ["ls"], "timeout": 5}),
        json!({"op": "run", "argv": ["ls"], "stdout": {"pipe": "x"}}),
        json!({"op": "sample", "paths": [], "interval_ns": 0}),
        json!({"op": "stop", "run": 4711}),
        json!({"op": "stdin", "run": 4711, "eof": true}),
        json!({"op": "read"}),
        json!({"op": "facts", "tools": {"x": "y"}}),
    ] {
        let event = agent.ask_final(request.clone());
        assert!(event.is("error") && event.get("message").is_string(), "{request}: {event:?}");
    }
    assert_eq!(agent.ask_final(json!({"op": "stop", "run": 4711})).get("errno"), "ESRCH");
    assert!(agent.ask_final(json!({"op": "clock"})).is("clock"));
}

#[test]
fn a_number_in_use_is_refused() {
    let mut agent = Agent::start();
    let (id, _) = agent.start_run(sh("sleep 1000"));
    agent.last_id = id - 1;
    assert_eq!(agent.ask_final(json!({"op": "clock"})).get("errno"), "EEXIST");
}

#[test]
fn a_frame_that_nobody_can_be_answered_for_ends_the_session() {
    let whole = |header: Value| frame(&header, &[]);
    let mut text = Vec::new();
    storlab_agent::protocol::encode(&mut text, b"no json", &[]).unwrap();
    for bytes in [
        whole(json!({"op": "dance"})),
        whole(json!({"op": "clock"})),
        whole(json!({"op": "clock", "id": 0})),
        whole(json!({"op": "clock", "id": -1})),
        whole(json!({"op": "clock", "id": "1"})),
        whole(json!([1, 2])),
        text,
        vec![0, 0, 0, 1],
        vec![0xff; 4],
        vec![0, 0, 0, 10, 0, 9],
    ] {
        let mut agent = Agent::start();
        let (_, started) = agent.start_run(sh("sleep 1000"));
        agent.write(&bytes);
        assert_eq!(agent.await_code(), Some(3), "{bytes:?}");
        assert!(!lives(started.number("pid") as i32));
    }
}

#[test]
fn noise_without_a_preface_ends_the_session() {
    let mut agent = Agent::spawn(Command::new(PROGRAM).arg("serve"));
    let _ = agent.stdin.as_mut().unwrap().write_all(&[b'x'; 100_000]);
    assert_eq!(agent.await_code(), Some(3));
}

#[test]
fn shutdown_ends_every_request_before_its_own() {
    let mut agent = Agent::start();
    let (run, started) = agent.start_run(sh("sleep 1000"));
    let sample = agent.send(json!({"op": "sample", "paths": [], "interval_ns": 1_000_000_000_000_u64}));
    let shutdown = agent.send(json!({"op": "shutdown"}));
    let mut finals = Vec::new();
    while finals.last() != Some(&shutdown) {
        let event = agent.read_event();
        if ["exit", "done", "error"].iter().any(|name| event.is(name)) {
            finals.push(event.number("id"));
        }
    }
    finals.sort_unstable();
    assert_eq!(finals, [run, sample, shutdown]);
    assert_eq!(agent.await_code(), Some(0));
    assert!(!lives(started.number("pid") as i32));
}

#[test]
fn a_signal_to_the_agent_ends_its_runs_first() {
    for (number, name) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let mut agent = Agent::start();
        let (_, started) = agent.start_run(sh("trap '' TERM INT; sleep 1000"));
        signal(agent.pid(), number);
        assert_eq!(agent.await_code(), Some(name));
        assert!(!lives(started.number("pid") as i32));
    }
}

#[test]
fn a_parent_that_ignores_the_death_of_children_does_not_disturb() {
    // Ignored signals are inherited; with SIGCHLD ignored, the kernel would reap the runs itself.
    let script = format!("trap '' CHLD HUP PIPE; exec {PROGRAM} serve");
    let mut agent = Agent::start_command(Command::new("/bin/sh").args(["-c", &script]));
    assert_eq!(agent.ask_final(sh("exit 5")).number("code"), 5);
    let status = common::output(&agent.ask(sh("grep -E 'SigIgn|SigBlk' /proc/self/status")), "stdout");
    for line in status.lines() {
        let set = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        // 32 and 33 belong to the C library, which lets nobody change them.
        assert_eq!(set & !(3 << 31), 0, "{status}");
    }
}

#[test]
fn a_socket_serves_as_port() {
    use std::os::unix::net::UnixListener;
    let directory = common::Directory::new("port");
    let path = directory.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut child = Command::new(PROGRAM)
        .args(["serve", "--port"])
        .arg(&path)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(common::GUARD)).unwrap();
    let mut greeting = [0; 16];
    std::io::Read::read_exact(&mut socket, &mut greeting).unwrap();
    assert_eq!(&greeting, PREFACE);
    drop(socket);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_terminal_serves_as_port_and_is_made_raw() {
    use nix::fcntl::OFlag;
    use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
    let mut master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname_r(&master).unwrap();
    // Held open, so that the agent's is not the only one and the line is not hung up.
    let line = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut child =
        Command::new(PROGRAM).args(["serve", "--port", &path]).stdin(Stdio::null()).spawn().unwrap();
    let mut greeting = [0; 16];
    std::io::Read::read_exact(&mut master, &mut greeting).unwrap();
    assert_eq!(&greeting, PREFACE);
    // A carriage return and an end-of-file character in the payload must pass unchanged.
    master.write_all(PREFACE).unwrap();
    master
        .write_all(&frame(&json!({"op": "hello", "id": 1, "protocol": 9, "version": "\r\u{4}"}), &[]))
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    drop(line);
}
