//! Memory stays bounded, and time-outs are kept, however slow the controller.

mod common;

use std::time::Duration;

use common::{Agent, lives, sh, wait_until, with};
use serde_json::json;

/// Several times what the agent needs, a fraction of what passes through it.
const MEMORY_KIB: u64 = 12 * 1024;

#[test]
fn a_quarter_of_a_gigabyte_passes_in_bounded_memory() {
    let mut agent = Agent::start();
    let id = agent.send(json!({"op": "run", "argv": ["head", "-c", "256M", "/dev/zero"]}));
    let mut size = 0;
    loop {
        let event = agent.next_of(id);
        if event.is("exit") {
            assert_eq!(event.number("code"), 0);
            break;
        }
        size += event.payload.len();
    }
    assert_eq!(size, 256 << 20);
    let peak = agent.peak_memory_kib();
    println!("peak memory: {peak} KiB");
    assert!(peak < MEMORY_KIB, "{peak} KiB");
}

#[test]
fn a_controller_that_does_not_read_stops_the_output_and_not_the_time_outs() {
    let mut agent = Agent::start();
    let noisy: Vec<u64> =
        (0..4).map(|_| agent.send(json!({"op": "run", "argv": ["cat", "/dev/zero"]}))).collect();
    let fields = json!({"timeout_ns": 200_000_000, "grace_ns": 100_000_000});
    let timed = agent.send(with(sh("trap '' TERM; sleep 1000 & echo $$ $!; wait; sleep 1000"), fields));
    // The noisy runs fill what there is between the agent and us before the time-out comes.
    std::thread::sleep(Duration::from_millis(100));
    let mut children = Vec::new();
    wait_until("the run that took too long is dead, though nobody has read of it", || {
        children = children_of(agent.pid());
        children.len() == noisy.len()
    });
    assert!(agent.peak_memory_kib() < MEMORY_KIB, "{} KiB", agent.peak_memory_kib());
    for &id in &noisy {
        agent.send(json!({"op": "stop", "run": id}));
    }
    assert_eq!(agent.finish_last(timed).get("stopped_by"), "KILL");
    for id in noisy {
        assert_eq!(agent.finish_last(id).get("stopped_by"), "TERM");
    }
}

fn children_of(parent: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let runs = children.split_whitespace().map(|pid| pid.parse().unwrap()).filter(|&pid| lives(pid));
    runs.filter(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() != "storlab-guard\n")
        .collect()
}

#[test]
fn a_controller_that_asks_without_reading_is_made_to_wait() {
    let mut agent = Agent::start();
    let mut stdin = agent.stdin.take().unwrap();
    let asker = std::thread::spawn(move || {
        for id in 1000..41_000_u64 {
            let request = common::frame(&json!({"op": "clock", "id": id}), &[]);
            std::io::Write::write_all(&mut stdin, &request).unwrap();
        }
        stdin
    });
    std::thread::sleep(Duration::from_millis(300));
    let peak = agent.peak_memory_kib();
    assert!(peak < MEMORY_KIB, "{peak} KiB");
    for id in 1000..41_000_u64 {
        assert_eq!(agent.read_event().number("id"), id);
    }
    agent.stdin = Some(asker.join().unwrap());
}

#[test]
fn a_slow_controller_gets_all_output_in_order() {
    let mut agent = Agent::start();
    let id = agent.send(sh("i=0; while [ $i -lt 100000 ]; do echo $i; i=$((i+1)); done"));
    std::thread::sleep(Duration::from_millis(200));
    let events = agent.finish(id);
    let expected: String = (0..100_000).map(|i| format!("{i}\n")).collect();
    assert!(common::output(&events, "stdout") == expected);
}

#[test]
fn a_large_file_is_read_in_bounded_memory() {
    let mut agent = Agent::start();
    let id = agent.send(json!({"op": "read", "path": "/dev/zero", "limit": 64 << 20}));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(agent.finish_last(id).number("size"), 64 << 20);
    assert!(agent.peak_memory_kib() < MEMORY_KIB, "{} KiB", agent.peak_memory_kib());
}

#[test]
fn closing_the_stream_is_seen_though_the_controller_had_stopped_reading() {
    let mut agent = Agent::start();
    let (_, started) = agent.start_run(json!({"op": "run", "argv": ["cat", "/dev/zero"]}));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(agent.close().code(), Some(0));
    assert!(!lives(started.number("pid") as i32));
}
