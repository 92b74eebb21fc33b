//! `turns`: runs that work one after the other, in slices.

mod common;

use std::fs;
use std::path::Path;

use common::{Agent, Directory, agent_without_cgroups, sh, wait_until};
use serde_json::{Value, json};

const MILLISECOND: u64 = 1_000_000;
/// Of `/proc/uptime`, which the programs here read: a hundredth of a second.
const COARSE: u64 = 11 * MILLISECOND;

/// Writes down when it works, again and again; two processes do.
fn clocking(file: &Path) -> Value {
    let file = file.display();
    let note = format!("while read -r now _ < /proc/uptime; do echo $now >> {file}; sleep 0.001; done");
    sh(&format!("({note}) & {note}"))
}

fn noted(file: &Path) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| (line.parse::<f64>().unwrap() * 1e9) as u64).collect()
}

fn now(agent: &mut Agent) -> u64 {
    agent.ask_final(json!({"op": "clock"})).number("monotonic_ns")
}

fn taken(event: &common::Event) -> Vec<(u64, u64)> {
    serde_json::from_value(event.get("turns").clone()).unwrap_or_else(|_| panic!("{event:?}"))
}

fn works_in_its_turns_alone(agent: &mut Agent, directory: &Directory, name: &str) {
    let files = [directory.path(&format!("{name}-first")), directory.path(&format!("{name}-second"))];
    let runs = [agent.start_run(clocking(&files[0])).0, agent.start_run(clocking(&files[1])).0];
    for file in &files {
        wait_until("it works", || !noted(file).is_empty());
    }
    for run in runs {
        let held = agent.ask_final(json!({"op": "turns", "run": run, "turns": []}));
        assert_eq!(taken(&held), []);
    }
    let held = now(agent);
    let turn = |number: u64| {
        let from = held + (100 + 250 * number) * MILLISECOND;
        [from, from + 220 * MILLISECOND]
    };
    let first = agent.send(json!({"op": "turns", "run": runs[0], "turns": [turn(0), turn(2), turn(3)]}));
    let second = agent.send(json!({"op": "turns", "run": runs[1], "turns": [turn(1), turn(4)]}));
    let turns = [taken(&agent.finish_last(first)), taken(&agent.finish_last(second))];
    assert_eq!((turns[0].len(), turns[1].len()), (3, 2));
    for (file, turns) in files.iter().zip(&turns) {
        let worked: Vec<u64> = noted(file).into_iter().filter(|&at| at > held + COARSE).collect();
        for at in &worked {
            let inside = turns.iter().any(|&(from, to)| from <= at + COARSE && *at <= to + COARSE);
            assert!(inside, "worked at {at}, not in {turns:?}");
        }
        // On a busy machine it may not get to anything in one of them, and what begins late has nothing left of it.
        let had_time = turns.iter().any(|&(from, to)| to - from > 100 * MILLISECOND);
        assert!(!worked.is_empty() || !had_time, "did not work in {turns:?}");
    }
    for run in runs {
        agent.ask_final(json!({"op": "stop", "run": run, "grace_ns": 5_000 * MILLISECOND}));
        assert_eq!(agent.finish_last(run).get("stopped_by"), "TERM", "what is held is let go to end");
    }
}

#[test]
fn runs_work_in_their_turns_alone() {
    let directory = Directory::new("turns");
    works_in_its_turns_alone(&mut Agent::start(), &directory, "cgroup");
}

#[test]
fn so_they_do_where_no_cgroup_can_be_made() {
    let directory = Directory::new("turns-without");
    let mut agent = agent_without_cgroups(&directory);
    works_in_its_turns_alone(&mut agent, &directory, "signals");
}

#[test]
fn a_run_that_ends_in_its_turn_is_answered_for() {
    let mut agent = Agent::start();
    let (run, _) = agent.start_run(sh("sleep 0.05"));
    let from = now(&mut agent);
    let turns = json!([[from, from + 10_000 * MILLISECOND]]);
    let id = agent.send(json!({"op": "turns", "run": run, "turns": turns}));
    assert!(agent.finish_last(id).is("error"));
    assert_eq!(agent.finish_last(run).number("code"), 0);
}

#[test]
fn a_held_run_can_be_killed_and_leaves_its_turns_unanswered_by_none() {
    let mut agent = Agent::start();
    let (run, _) = agent.start_run(sh("sleep 1000"));
    let later = now(&mut agent) + 100_000 * MILLISECOND;
    let id = agent.send(json!({"op": "turns", "run": run, "turns": [[later, later + 1]]}));
    agent.ask_final(json!({"op": "stop", "run": run, "grace_ns": 0}));
    assert!(agent.finish_last(id).is("error"));
    assert_eq!(agent.finish_last(run).get("stopped_by"), "KILL");
}

#[test]
fn turns_that_can_not_be_taken_are_refused() {
    let mut agent = Agent::start();
    let (run, _) = agent.start_run(sh("sleep 1000"));
    for turns in [json!([[2, 1]]), json!([[1, 3], [2, 4]]), json!([[1, 1]]), json!([[-1, 1]])] {
        assert!(agent.ask_final(json!({"op": "turns", "run": run, "turns": turns})).is("error"), "{turns}");
    }
    assert_eq!(agent.ask_final(json!({"op": "turns", "run": run + 100, "turns": []})).get("errno"), "ESRCH");
    let later = now(&mut agent) + 100_000 * MILLISECOND;
    agent.send(json!({"op": "turns", "run": run, "turns": [[later, later + 1]]}));
    assert!(
        agent.ask_final(json!({"op": "turns", "run": run, "turns": []})).is("error"),
        "it is taking turns"
    );
}

#[test]
fn a_turn_whose_time_is_over_before_it_begins_takes_no_time() {
    let directory = Directory::new("turns-over");
    let begun = directory.path("begun");
    let mut agent = Agent::start();
    // Word that it is there comes before it begins, and only what has begun can be held.
    let (run, _) = agent.start_run(sh(&format!("touch {}; sleep 1000", begun.display())));
    wait_until("it works", || begun.exists());
    let turns = taken(&agent.ask_final(json!({"op": "turns", "run": run, "turns": [[1, 2]]})));
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].0, turns[0].1);
}
