//! `run`: how a program is started, fed, and ended.

mod common;

use std::fs;

use common::{Agent, Directory, lives, output, sh, wait_until, with};
use serde_json::json;

const MILLISECOND: u64 = 1_000_000;

#[test]
fn a_run_tells_its_start_its_output_and_its_end_in_this_order() {
    let mut agent = Agent::start();
    let events = agent.ask(sh("echo out; echo err >&2; exit 7"));
    assert!(events[0].is("started") && events[0].number("pid") > 1);
    assert_eq!(output(&events, "stdout"), "out\n");
    assert_eq!(output(&events, "stderr"), "err\n");
    let exit = events.last().unwrap();
    assert_eq!(exit.number("code"), 7);
    for field in ["signal", "stopped_by", "late_ns"] {
        assert!(exit.get(field).is_null(), "{field}");
    }
    assert_eq!(exit.get("timed_out"), false);
    assert_eq!(exit.number("survivors"), 0);
    assert!(exit.number("start_ns") > 0 && exit.number("elapsed_ns") > 0 && exit.number("max_rss_bytes") > 0);
}

#[test]
fn of_much_output_the_first_is_sent_and_the_rest_is_counted() {
    let mut agent = Agent::start();
    let script = "head -c 300000 /dev/zero; printf 12345678 >&2; printf 9ab >&2";
    let events = agent.ask(with(sh(script), json!({"most_output": 10})));
    assert_eq!(output(&events, "stdout"), "\0".repeat(10));
    assert_eq!(output(&events, "stderr"), "123456789a");
    let exit = events.last().unwrap();
    assert_eq!((exit.number("code"), exit.number("dropped")), (0, 300_000 - 10 + 1));
    assert_eq!(agent.ask_final(sh("echo all")).number("dropped"), 0);
}

#[test]
fn what_a_program_used_is_told_without_what_its_launch_used() {
    let mut agent = Agent::start();
    let exit = agent.ask_final(sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"));
    let used = exit.number("user_ns") + exit.number("system_ns");
    assert!(used > MILLISECOND && used <= exit.number("elapsed_ns") + 20 * MILLISECOND, "{exit:?}");
}

#[test]
fn a_signal_that_ended_a_run_is_named() {
    let mut agent = Agent::start();
    let exit = agent.ask_final(sh("kill -SEGV $$"));
    assert!(exit.get("code").is_null());
    assert_eq!(exit.get("signal"), "SIGSEGV");
    assert!(exit.get("stopped_by").is_null());
}

#[test]
fn a_program_that_can_not_be_executed_answers_with_the_reason() {
    let directory = Directory::new("execute");
    let script = directory.path("script");
    fs::write(&script, "no magic number\n").unwrap();
    let mut agent = Agent::start();
    for (argv, errno) in
        [("no-such-program", "ENOENT"), ("/no/such", "ENOENT"), ("/etc/passwd", "EACCES"), ("/etc", "EACCES")]
    {
        let event = agent.ask_final(json!({"op": "run", "argv": [argv]}));
        assert_eq!(event.get("errno"), errno, "{event:?}");
        assert!(event.get("message").as_str().unwrap().contains(argv));
    }
    let chmod = agent.ask_final(json!({"op": "run", "argv": ["chmod", "+x", script]}));
    assert_eq!(chmod.number("code"), 0);
    assert_eq!(agent.ask_final(json!({"op": "run", "argv": [script]})).get("errno"), "ENOEXEC");
}

#[test]
fn a_program_is_looked_for_on_its_own_path() {
    let directory = Directory::new("path");
    let tool = directory.path("a-tool-of-this-test");
    fs::write(&tool, "#!/bin/sh\necho found\n").unwrap();
    let mut agent = Agent::start();
    agent.ask_final(json!({"op": "run", "argv": ["chmod", "+x", tool]}));
    let run = json!({"op": "run", "argv": ["a-tool-of-this-test"]});
    assert_eq!(agent.ask_final(run.clone()).get("errno"), "ENOENT");
    let events = agent.ask(with(run, json!({"env": {"PATH": directory.0}})));
    assert_eq!(output(&events, "stdout"), "found\n");
    let relative = json!({"op": "run", "argv": ["./a-tool-of-this-test"], "cwd": directory.0});
    assert_eq!(output(&agent.ask(relative), "stdout"), "found\n");
}

#[test]
fn the_environment_is_added_to_and_taken_from() {
    let mut agent = Agent::start_command(
        std::process::Command::new(common::PROGRAM).arg("serve").env("KEPT", "1").env("REMOVED", "2"),
    );
    let run = with(sh("echo $KEPT,${REMOVED-none},$ADDED"), json!({"env": {"ADDED": "3", "REMOVED": null}}));
    assert_eq!(output(&agent.ask(run), "stdout"), "1,none,3\n");
}

#[test]
fn a_working_directory_that_is_not_there_is_named() {
    let mut agent = Agent::start();
    let event = agent.ask_final(with(sh("true"), json!({"cwd": "/no/such"})));
    assert_eq!(event.get("errno"), "ENOENT");
    assert!(event.get("message").as_str().unwrap().contains("/no/such"));
    assert_eq!(output(&agent.ask(with(sh("pwd"), json!({"cwd": "/usr"}))), "stdout"), "/usr\n");
}

#[test]
fn output_into_a_file_does_not_come_over_the_stream() {
    let directory = Directory::new("output");
    let mut agent = Agent::start();
    let (out, both) = (directory.path("out"), directory.path("both"));
    fs::write(&out, "what was there before, and is longer").unwrap();
    let events =
        agent.ask(with(sh("echo 1; echo 2 >&2"), json!({"stdout": {"file": out}, "stderr": "discard"})));
    assert_eq!(events.iter().filter(|event| event.is("stdout") || event.is("stderr")).count(), 0);
    assert_eq!(fs::read_to_string(&out).unwrap(), "1\n");
    agent.ask(with(
        sh("echo 1; echo 2 >&2; echo 3"),
        json!({"stdout": {"file": both}, "stderr": {"file": both}}),
    ));
    assert_eq!(fs::read_to_string(&both).unwrap(), "1\n2\n3\n");
    let event = agent.ask_final(with(sh("true"), json!({"stderr": {"file": "/no/such/file"}})));
    assert_eq!(event.get("errno"), "ENOENT");
}

#[test]
fn a_run_that_takes_too_long_is_asked_to_end() {
    let mut agent = Agent::start();
    let exit = agent.ask_final(with(sh("exec sleep 1000"), json!({"timeout_ns": 50 * MILLISECOND})));
    assert_eq!(exit.get("timed_out"), true);
    assert_eq!(exit.get("stopped_by"), "TERM");
    assert_eq!(exit.get("signal"), "SIGTERM");
    assert!(exit.number("elapsed_ns") >= 50 * MILLISECOND);
}

#[test]
fn a_run_that_ignores_term_is_killed_after_its_grace() {
    let mut agent = Agent::start();
    let run = with(
        sh("trap '' TERM; echo ready; while :; do sleep 1000; done"),
        json!({"timeout_ns": 200 * MILLISECOND, "grace_ns": 100 * MILLISECOND}),
    );
    let exit = agent.ask_final(run);
    assert_eq!(exit.get("stopped_by"), "KILL");
    assert_eq!(exit.get("signal"), "SIGKILL");
    assert!(exit.number("elapsed_ns") >= 300 * MILLISECOND);
}

#[test]
fn a_stopped_run_may_end_in_its_own_way() {
    let mut agent = Agent::start();
    let (id, _) =
        agent.start_run(sh("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done"));
    assert_eq!(agent.next_of(id).payload, b"ready\n");
    assert!(agent.ask_final(json!({"op": "stop", "run": id})).is("done"));
    let events = agent.finish(id);
    assert_eq!(output(&events, "stdout"), "bye\n");
    let exit = events.last().unwrap();
    assert_eq!((exit.number("code"), exit.get("stopped_by")), (3, &json!("TERM")));
    assert_eq!(exit.get("timed_out"), false);
}

#[test]
fn a_stop_without_grace_kills_at_once() {
    let mut agent = Agent::start();
    let (id, _) = agent.start_run(sh("exec sleep 1000"));
    agent.ask_final(json!({"op": "stop", "run": id, "grace_ns": 0}));
    assert_eq!(agent.finish_last(id).get("stopped_by"), "KILL");
}

#[test]
fn a_signal_of_its_own_goes_to_the_first_process_alone() {
    let mut agent = Agent::start();
    let child = "sh -c 'trap \"echo child\" USR1 TERM; echo ready; sleep 0.5; echo done'";
    let (id, _) = agent.start_run(sh(&format!("trap 'wait; exit 5' USR1; {child} & wait")));
    assert_eq!(agent.next_of(id).payload, b"ready\n");
    agent.ask_final(json!({"op": "stop", "run": id, "signal": "SIGUSR1", "grace_ns": 20_000 * MILLISECOND}));
    let events = agent.finish(id);
    assert_eq!(output(&events, "stdout"), "done\n");
    let exit = events.last().unwrap();
    assert_eq!((exit.number("code"), exit.get("stopped_by")), (5, &json!("USR1")));
}

#[test]
fn those_that_the_first_process_leaves_are_asked_too_and_have_the_rest_of_the_grace() {
    let mut agent = Agent::start();
    let child = "sh -c 'trap \"echo asked; exit\" TERM; echo ready; while :; do sleep 0.05; done'";
    let (id, _) = agent.start_run(sh(&format!("trap 'exit 5' USR1; {child} & while :; do sleep 0.05; done")));
    assert_eq!(agent.next_of(id).payload, b"ready\n");
    agent.ask_final(json!({"op": "stop", "run": id, "signal": "SIGUSR1", "grace_ns": 20_000 * MILLISECOND}));
    let events = agent.finish(id);
    assert_eq!(output(&events, "stdout"), "asked\n");
    assert_eq!(events.last().unwrap().number("survivors"), 0);
}

#[test]
fn a_first_process_that_ignores_its_signal_is_killed_after_the_grace() {
    let mut agent = Agent::start();
    let (id, _) = agent.start_run(sh("trap '' INT; echo ready; while :; do sleep 0.05; done"));
    assert_eq!(agent.next_of(id).payload, b"ready\n");
    agent.ask_final(json!({"op": "stop", "run": id, "signal": "SIGINT", "grace_ns": 200 * MILLISECOND}));
    assert_eq!(agent.finish_last(id).get("stopped_by"), "KILL");
}

#[test]
fn what_is_no_signal_and_no_name_is_refused() {
    let mut agent = Agent::start();
    let refused = agent.ask_final(json!({"op": "stop", "run": 1, "signal": "INTERRUPT"}));
    assert!(refused.get("message").as_str().unwrap().contains("\"INTERRUPT\" is no signal"));
    for name in ["", ".", "a/b", ".x", "a b"] {
        let refused = agent.ask_final(json!({"op": "run", "argv": ["true"], "name": name}));
        assert!(refused.get("message").as_str().unwrap().contains("can't name a cgroup"), "{refused:?}");
    }
}

#[test]
fn output_bears_the_time_at_which_it_was_read() {
    let mut agent = Agent::start();
    let events = agent.ask(sh("echo one; sleep 0.2; echo two >&2"));
    let times: Vec<u64> = events
        .iter()
        .filter(|e| e.is("stdout") || e.is("stderr"))
        .map(|e| e.number("monotonic_ns"))
        .collect();
    assert_eq!(times.len(), 2);
    assert!(times[1] - times[0] >= 150 * MILLISECOND, "{times:?}");
    let start = events.last().unwrap().number("start_ns");
    assert!(times[0] >= start, "{times:?} {start}");
}

#[test]
fn a_second_stop_can_shorten_the_grace() {
    let mut agent = Agent::start();
    let (id, _) = agent.start_run(sh("trap '' TERM; echo ready; while :; do sleep 1000; done"));
    agent.next_of(id);
    agent.ask_final(json!({"op": "stop", "run": id, "grace_ns": 1_000_000_000_000_000_u64}));
    agent.ask_final(json!({"op": "stop", "run": id, "grace_ns": 1}));
    assert_eq!(agent.finish_last(id).get("stopped_by"), "KILL");
}

#[test]
fn a_stopped_job_is_woken_to_hear_that_it_must_end() {
    let mut agent = Agent::start();
    let (id, started) =
        agent.start_run(sh("trap 'exit 4' TERM; kill -STOP $$; while :; do sleep 0.01; done"));
    let stat = format!("/proc/{}/stat", started.number("pid"));
    wait_until("the job is stopped", || fs::read_to_string(&stat).unwrap().contains(") T "));
    agent.ask_final(json!({"op": "stop", "run": id}));
    assert_eq!(agent.finish_last(id).number("code"), 4);
}

#[test]
fn what_is_sent_arrives_at_the_standard_input_until_eof() {
    let mut agent = Agent::start();
    let (id, _) = agent.start_run(json!({"op": "run", "argv": ["cat"], "stdin": "stream"}));
    let first = agent.send_with(json!({"op": "stdin", "run": id}), b"hello ");
    assert!(agent.finish_last(first).is("done"));
    let last = agent.send_with(json!({"op": "stdin", "run": id, "eof": true}), b"world");
    assert!(agent.finish_last(last).is("done"));
    let events = agent.finish(id);
    assert_eq!(output(&events, "stdout"), "hello world");
    assert_eq!(events.last().unwrap().number("code"), 0);
    assert_eq!(agent.ask_final(json!({"op": "stdin", "run": id, "eof": true})).get("errno"), "ESRCH");
}

#[test]
fn without_a_stream_the_standard_input_is_empty() {
    let mut agent = Agent::start();
    let (id, _) = agent.start_run(sh("cat; exec sleep 1000"));
    assert_eq!(agent.ask_final(json!({"op": "stdin", "run": id})).get("errno"), "EBADF");
}

#[test]
fn a_program_that_does_not_read_its_input_holds_up_nobody() {
    let mut agent = Agent::start();
    let (id, _) = agent.start_run(with(sh("exec sleep 1000"), json!({"stdin": "stream"})));
    let megabyte = vec![b'x'; 1 << 20];
    let waiting: Vec<u64> =
        (0..4).map(|_| agent.send_with(json!({"op": "stdin", "run": id}), &megabyte)).collect();
    let refused = agent.send_with(json!({"op": "stdin", "run": id}), &megabyte);
    assert_eq!(agent.finish_last(refused).get("errno"), "ENOBUFS");
    assert!(agent.ask_final(json!({"op": "clock"})).is("clock"));
    agent.ask_final(json!({"op": "stop", "run": id}));
    for request in waiting {
        assert_eq!(agent.finish_last(request).get("errno"), "EPIPE");
    }
    assert!(agent.finish_last(id).is("exit"));
}

#[test]
fn a_megabyte_of_input_arrives_whole() {
    let mut agent = Agent::start();
    let (id, _) = agent.start_run(json!({"op": "run", "argv": ["wc", "-c"], "stdin": "stream"}));
    let request = agent.send_with(json!({"op": "stdin", "run": id, "eof": true}), &vec![b'x'; 1 << 20]);
    assert!(agent.finish_last(request).is("done"));
    assert_eq!(output(&agent.finish(id), "stdout"), "1048576\n");
}

#[test]
fn four_agents_start_at_one_instant() {
    let mut agents: Vec<Agent> = (0..4).map(|_| Agent::start()).collect();
    let at = agents[0].ask_final(json!({"op": "clock"})).number("monotonic_ns") + 300 * MILLISECOND;
    let run = json!({"op": "run", "argv": ["true"], "start_at_ns": at});
    let ids: Vec<u64> = agents.iter_mut().map(|agent| agent.start_run(run.clone()).0).collect();
    let exits: Vec<_> = agents.iter_mut().zip(ids).map(|(agent, id)| agent.finish_last(id)).collect();
    let late: Vec<u64> = exits.iter().map(|exit| exit.number("late_ns")).collect();
    println!("lateness in ns: {late:?}");
    for exit in exits {
        assert_eq!(exit.number("code"), 0);
        assert_eq!(exit.number("start_ns"), at + exit.number("late_ns"));
        // Never early; how late depends on the machine, and this guards against seconds only.
        assert!(exit.number("late_ns") < 2_000 * MILLISECOND, "{exit:?}");
    }
}

#[test]
fn a_program_that_waited_for_its_instant_is_scheduled_like_any_other() {
    let mut agent = Agent::start();
    let at = agent.ask_final(json!({"op": "clock"})).number("monotonic_ns") + 50 * MILLISECOND;
    let script = "cut -d' ' -f40,41 /proc/self/stat; cat /proc/self/timerslack_ns";
    let waited = output(&agent.ask(with(sh(script), json!({"start_at_ns": at}))), "stdout");
    assert_eq!(waited, output(&agent.ask(sh(script)), "stdout"));
}

#[test]
fn an_instant_that_has_passed_means_at_once() {
    let mut agent = Agent::start();
    for at in [0, -5, 1] {
        let exit = agent.ask_final(json!({"op": "run", "argv": ["true"], "start_at_ns": at}));
        assert!(exit.number("late_ns") > MILLISECOND, "{exit:?}");
    }
}

#[test]
fn a_run_that_waits_for_its_instant_can_be_stopped() {
    let mut agent = Agent::start();
    let at = agent.ask_final(json!({"op": "clock"})).number("monotonic_ns") + 3_600_000 * MILLISECOND;
    let (id, started) = agent.start_run(json!({"op": "run", "argv": ["true"], "start_at_ns": at}));
    agent.ask_final(json!({"op": "stop", "run": id}));
    let exit = agent.finish_last(id);
    assert_eq!(exit.get("stopped_by"), "TERM");
    assert!(exit.get("start_ns").is_null());
    assert!(!lives(started.number("pid") as i32));
}

#[test]
fn a_time_out_is_counted_from_the_agreed_instant() {
    let mut agent = Agent::start();
    let at = agent.ask_final(json!({"op": "clock"})).number("monotonic_ns") + 300 * MILLISECOND;
    let fields = json!({"start_at_ns": at, "timeout_ns": 100 * MILLISECOND});
    let exit = agent.ask_final(with(sh("exec sleep 1000"), fields));
    assert_eq!(exit.get("timed_out"), true);
    assert!(exit.number("start_ns") >= at && exit.number("elapsed_ns") >= 100 * MILLISECOND);
}

#[test]
fn a_launch_that_hangs_is_ended_by_its_time_out() {
    let directory = Directory::new("fifo");
    let fifo = directory.path("fifo");
    let mut agent = Agent::start();
    agent.ask_final(json!({"op": "run", "argv": ["mkfifo", fifo]}));
    // Opening a named pipe that nobody reads blocks the launch, not the agent.
    let fields = json!({"stdout": {"file": fifo}, "timeout_ns": 100 * MILLISECOND});
    let exit = agent.ask_final(with(sh("true"), fields));
    assert_eq!(exit.get("timed_out"), true);
    assert!(exit.get("start_ns").is_null());
}

#[test]
fn the_program_inherits_no_descriptor_of_the_agent() {
    let mut agent = Agent::start();
    let (_, _) = agent.start_run(with(sh("exec sleep 1000"), json!({"stdin": "stream"})));
    let listed = output(&agent.ask(sh("ls /proc/self/fd")), "stdout");
    // 3 is the directory that ls itself has opened.
    assert_eq!(listed, "0\n1\n2\n3\n");
}

#[test]
fn many_runs_at_once_all_end() {
    let mut agent = Agent::start();
    let ids: Vec<u64> = (0..40).map(|i| agent.send(sh(&format!("echo {i}; exit {i}")))).collect();
    for (i, id) in ids.into_iter().enumerate() {
        let events = agent.finish(id);
        assert_eq!(output(&events, "stdout"), format!("{i}\n"));
        assert_eq!(events.last().unwrap().number("code"), i as u64);
    }
}
