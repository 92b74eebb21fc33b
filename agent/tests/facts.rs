//! `facts`: what the node is.

mod common;

use std::fs;

use common::{Agent, is_root};
use serde_json::json;

#[test]
fn the_node_is_described() {
    let mut agent = Agent::start();
    let facts = agent.ask_final(json!({"op": "facts"}));
    assert!(facts.is("facts"));
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(facts.get("kernel")["release"], release.trim());
    for field in ["version", "machine"] {
        assert!(!facts.get("kernel")[field].as_str().unwrap().is_empty());
    }
    assert!(facts.get("cpus")["online"].as_u64().unwrap() > 0);
    let memory = facts.get("memory");
    assert!(memory["total_bytes"].as_u64().unwrap() >= memory["available_bytes"].as_u64().unwrap());
    assert!(facts.get("filesystems").as_array().unwrap().contains(&json!("proc")));
    assert!(facts.get("modules").is_array());
    assert!(facts.get("clocks")["resolution_ns"].as_u64().unwrap() > 0);
    assert!(["v1", "v2", "hybrid", "none"].contains(&facts.get("cgroup").as_str().unwrap()));
    assert_eq!(facts.number("uid") == 0, is_root());
    assert_eq!(facts.get("tools"), &json!({}));
}

#[test]
fn a_tools_version_is_the_first_line_that_it_prints() {
    let mut agent = Agent::start();
    let tools = json!({
        "out": ["sh", "-c", "echo; echo tool 1.2; echo more"],
        "err": ["sh", "-c", "echo usage >&2; exit 1"],
        "silent": ["true"],
        "absent": ["no-such-program"],
        "nameless": [],
        "endless": ["yes"],
    });
    let started = std::time::Instant::now();
    let facts = agent.ask_final(json!({"op": "facts", "tools": tools}));
    let tools = facts.get("tools");
    assert_eq!(tools["out"]["version"], "tool 1.2");
    assert!(tools["out"]["path"].as_str().unwrap().ends_with("/sh"));
    assert_eq!(tools["err"]["version"], "usage");
    assert!(tools["silent"]["path"].is_string() && tools["silent"]["version"].is_null());
    assert!(tools["absent"].is_null() && tools["nameless"].is_null());
    assert!(tools["endless"]["path"].is_string() && tools["endless"]["version"].is_null());
    assert!(started.elapsed() < common::GUARD);
}

#[test]
fn a_tool_that_hangs_does_not_hold_up_the_clock() {
    let mut agent = Agent::start();
    let facts = agent.send(json!({"op": "facts", "tools": {"hangs": ["sleep", "1000"]}}));
    assert!(agent.ask_final(json!({"op": "clock"})).is("clock"));
    let facts = agent.finish_last(facts);
    assert!(facts.get("tools")["hangs"]["version"].is_null());
}

#[test]
fn more_tools_than_run_at_once_are_all_looked_at() {
    let mut agent = Agent::start();
    let tools: serde_json::Map<_, _> =
        (0..50).map(|i| (format!("t{i}"), json!(["echo", i.to_string()]))).collect();
    let facts = agent.ask_final(json!({"op": "facts", "tools": tools}));
    for i in 0..50 {
        assert_eq!(facts.get("tools")[format!("t{i}")]["version"], i.to_string());
    }
}
