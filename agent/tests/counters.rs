//! `counters` and counted runs: what perf events say, and what keeps them from it.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Agent, PROGRAM, is_root, sh, with};
use serde_json::{Value, json};

/// A hundred sleeps, each a switch to another thread, in two processes.
const SLEEPS: &str = "i=0; while [ $i -lt 50 ]; do sleep 0.001; i=$((i+1)); done & \
     j=0; while [ $j -lt 50 ]; do sleep 0.001; j=$((j+1)); done; wait";

fn may_count() -> bool {
    let may = is_root() && Path::new("/proc/sys/kernel/perf_event_paranoid").exists();
    if !may {
        eprintln!("skipped: counting what all processes do needs root, and a kernel with perf events");
    }
    may
}

#[test]
fn a_counted_run_tells_what_its_processes_did_and_another_run_does_not() {
    if !may_count() {
        return;
    }
    let mut agent = Agent::start();
    let exit = agent.ask_final(with(sh(SLEEPS), json!({"count": true})));
    let counts = &exit.get("counted")["counts"];
    assert!(counts["context_switches"].as_u64().unwrap() >= 100, "{exit:?}");
    assert!(counts["page_faults"].as_u64().unwrap() > 100, "{exit:?}");
    let (clock, used) =
        (counts["task_clock"].as_u64().unwrap(), exit.number("user_ns") + exit.number("system_ns"));
    assert!(clock > used / 2 && clock < 2 * used + 20_000_000, "{exit:?}");
    let known = counts.as_object().unwrap().len() + exit.get("counted")["without"].as_object().unwrap().len();
    assert_eq!(known, 7);
    assert!(agent.ask_final(sh("true")).get("counted").is_null());
}

#[test]
fn a_counted_run_that_can_not_be_executed_says_so() {
    let mut agent = Agent::start();
    let answer = agent.ask_final(json!({"op": "run", "argv": ["/no/such/program"], "count": true}));
    assert_eq!(answer.get("errno"), "ENOENT");
}

#[test]
fn the_counters_of_a_node_never_run_backwards() {
    if !may_count() {
        return;
    }
    let words = ["counters", "--interval", "0.02", "--for", "0.2"];
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["event"], "started");
    assert_eq!(lines.last().unwrap()["final"], true);
    let switches: Vec<_> =
        lines[1..].iter().map(|line| line["counts"]["context_switches"].as_u64().unwrap()).collect();
    assert!(switches.len() > 2 && switches.is_sorted() && switches.last() > switches.first(), "{switches:?}");
}

#[test]
fn a_low_limit_of_open_files_is_raised_where_it_may_be() {
    if !may_count() {
        return;
    }
    let words = ["--nofile=10:1024", PROGRAM, "counters", "--for", "0.05"];
    let output = Command::new("prlimit").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("Too many open files"), "{output:?}");
}

#[test]
fn where_hardware_counters_are_needed_and_missing_nothing_is_counted() {
    if !may_count() {
        return;
    }
    let ask = |words: &[&str]| Command::new(PROGRAM).args(words).output().unwrap();
    assert!(ask(&["counters", "--check"]).status.success());
    let checked = ask(&["counters", "--hardware", "--check"]);
    if !checked.status.success() {
        assert_eq!(checked.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&checked.stderr).contains("(PMU)"), "{checked:?}");
    }
}

#[test]
fn wrong_options_end_with_status_2() {
    for words in [["counters", "--x"], ["profile", "--frequency"]] {
        assert_eq!(Command::new(PROGRAM).args(words).output().unwrap().status.code(), Some(2));
    }
}
