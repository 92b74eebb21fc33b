//! `storlab-agent trace` as a program: what it says, and how it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_storlab-agent");

fn trace(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
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

/// The same kernel with tracefs mounted in one way or another, as a shell prepares its own mount namespace.
const UNMOUNTED: &str = "umount --all --lazy --types tracefs,debugfs";
const MOUNTED: [&str; 3] =
    ["true", "mount -t tracefs tracefs /sys/kernel/tracing", "mount -t debugfs debugfs /sys/kernel/debug"];

/// Both hooks, on machines on which nobody has mounted tracefs, and on others.
#[test]
fn it_says_when_it_starts_and_what_it_counted_when_it_ends() {
    for mounting in MOUNTED {
        for hook in ["btf", "tracepoint"] {
            let script = format!("{UNMOUNTED} && {mounting} && exec \"$@\"");
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script, "sh", PROGRAM, "trace", "--hook", hook]);
            if !geteuid().is_root() {
                command = trace(&["--hook", hook]); // who isn't root may not
            }
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let Some(first) = lines.next() else {
                let ended = child.wait_with_output().unwrap();
                assert_eq!((ended.status.code(), geteuid().is_root()), (Some(1), false), "{ended:?}");
                continue;
            };
            let started: Value = serde_json::from_str(&first.unwrap()).unwrap();
            assert_eq!(
                (&started["event"], &started["hook"]),
                (&"started".into(), &hook.into()),
                "{mounting}"
            );
            kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
            let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
            assert_eq!(rest.len(), 1);
            assert_eq!((&rest[0]["event"], &rest[0]["final"]), (&"counts".into(), &true.into()));
            assert!(child.wait().unwrap().success());
        }
    }
}

/// Mounts that it kept, even of its own, would keep file systems busy that somebody unmounts meanwhile.
#[test]
fn it_stays_in_the_mount_namespace_that_it_was_started_in_and_leaves_nothing_mounted() {
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let mut child = trace(&["--hook", "tracepoint"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    if lines.next().is_some() {
        let process = PathBuf::from(format!("/proc/{}", child.id()));
        while fs::read_dir(process.join("task")).unwrap().count() > 1 {
            thread::sleep(Duration::from_millis(1)); // the kernel is still about the end of a thread
        }
        let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).unwrap();
        assert_eq!(namespace(&process), namespace(Path::new("/proc/self")));
        assert_eq!(mounts(), before);
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(if geteuid().is_root() { 0 } else { 1 }));
}

/// Programs that find no file descriptor are none that the kernel lacks.
#[test]
fn a_limit_of_open_files_is_raised_or_named() {
    if !geteuid().is_root() {
        return;
    }
    for hook in ["btf", "tracepoint"] {
        let limited = |limit: &str| {
            let confined = ["--bounding-set=-sys_resource", "prlimit", limit, PROGRAM];
            Command::new("setpriv")
                .args(confined)
                .args(["trace", "--hook", hook, "--for", "0.001"])
                .output()
                .unwrap()
        };
        let raised = limited("--nofile=20:4096");
        let started = String::from_utf8(raised.stdout).unwrap();
        assert!(raised.status.success() && started.contains("\"without\":[]"), "{started}");
        let refused = limited("--nofile=20:20");
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(
            String::from_utf8(refused.stderr).unwrap(),
            "storlab-agent: block I/O can't be traced: it takes 64 open files, and this process may have 20: raise the limit, as by `ulimit -n 64`\n"
        );
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
