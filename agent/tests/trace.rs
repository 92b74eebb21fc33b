//! `storlab-agent trace` as a program: what it says, and how it ends.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

fn trace(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storlab-agent"));
    command.arg("trace").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_disk_that_is_not_there_is_refused_before_anything_is_attached() {
    let ended = trace(&["--disk", "no-such-disk"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(
        said,
        "storlab-agent: there is no disk \"no-such-disk\" here; `lsblk` lists those that there are\n"
    );
}

#[test]
fn a_wrong_argument_is_named_with_the_usage() {
    let ended = trace(&["--op", "writes"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(
        said.starts_with("storlab-agent: \"writes\" is no operation") && said.contains("usage:"),
        "{said}"
    );
}

/// Both hooks, where this kernel allows them: whoever isn't root may not.
#[test]
fn it_says_when_it_starts_and_what_it_counted_when_it_ends() {
    for hook in ["btf", "tracepoint"] {
        let mut child = trace(&["--hook", hook]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let Some(first) = lines.next() else {
            let ended = child.wait_with_output().unwrap();
            assert_eq!((ended.status.code(), geteuid().is_root()), (Some(1), false), "{ended:?}");
            continue;
        };
        let started: Value = serde_json::from_str(&first.unwrap()).unwrap();
        assert_eq!((&started["event"], &started["hook"]), (&"started".into(), &hook.into()));
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
        let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        assert_eq!(rest.len(), 1);
        assert_eq!((&rest[0]["event"], &rest[0]["final"]), (&"counts".into(), &true.into()));
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_time_that_no_clock_reaches_is_waited_for_until_it_is_told_to_end() {
    let mut child = trace(&["--for", "1.8e19", "--interval", "1.8e19"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    if lines.next().is_some() {
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
        assert_eq!(lines.count(), 1);
    }
    assert_eq!(child.wait().unwrap().code(), Some(if geteuid().is_root() { 0 } else { 1 }));
}

/// Nobody is left to read: it ends, and nothing stays attached.
#[test]
fn it_ends_when_nobody_reads_any_more() {
    let mut child = trace(&["--interval", "0.05"]).spawn().unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(if geteuid().is_root() { 0 } else { 1 }));
}
