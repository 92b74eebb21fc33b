//! Nothing that a run started outlives it, and nothing at all outlives the agent.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{
    Agent, Directory, PROGRAM, agent_without_cgroups, is_root, lives, output, read_pid, sh, signal,
    wait_until, with,
};
use nix::sys::signal::Signal;
use serde_json::json;

/// Leaves session, group and parents: `setsid`, and the parent ends. Ignores TERM. Writes its number.
fn daemon(pid_file: &Path) -> String {
    let pid_file = pid_file.display();
    format!(
        "setsid sh -c 'trap \"\" TERM HUP; sh -c \"echo \\$\\$ > {pid_file}; exec sleep 1000\" & exit' & wait; "
    )
}

fn daemons_die_with_their_run(agent: &mut Agent, directory: &Directory) {
    let other = directory.path("other");
    let (other_id, _) = agent.start_run(sh(&format!("{} exec sleep 1000", daemon(&other))));
    let other = read_pid(&other);

    let pid_file = directory.path("ended");
    let script = format!("{} while [ ! -s {} ]; do sleep 0.01; done", daemon(&pid_file), pid_file.display());
    let exit = agent.ask_final(sh(&script));
    assert_eq!((exit.number("code"), exit.number("survivors")), (0, 1));
    assert!(!lives(read_pid(&pid_file)));

    let pid_file = directory.path("stopped");
    let (id, _) = agent.start_run(sh(&format!("{} exec sleep 1000", daemon(&pid_file))));
    let pid = read_pid(&pid_file);
    agent.ask_final(json!({"op": "stop", "run": id, "grace_ns": 1_000_000_000}));
    let exit = agent.finish_last(id);
    assert_eq!((exit.get("stopped_by"), exit.number("survivors")), (&json!("KILL"), 1), "{exit:?}");
    assert!(!lives(pid));

    assert!(lives(other), "another run's daemon must not be touched");
    agent.ask_final(json!({"op": "stop", "run": other_id, "grace_ns": 0}));
    assert_eq!(agent.finish_last(other_id).get("stopped_by"), "KILL");
    wait_until("the other daemon is dead, too", || !lives(other));
}

#[test]
fn a_daemon_dies_with_its_run() {
    let directory = Directory::new("daemon");
    daemons_die_with_their_run(&mut Agent::start(), &directory);
}

#[test]
fn a_daemon_dies_with_its_run_where_no_cgroup_can_be_made() {
    let directory = Directory::new("daemon-without");
    let mut agent = agent_without_cgroups(&directory);
    let (id, started) = agent.start_run(sh("exec sleep 1000"));
    if !is_root() || started.get("cgroup").is_null() {
        agent.ask_final(json!({"op": "stop", "run": id, "grace_ns": 0}));
        daemons_die_with_their_run(&mut agent, &directory);
    } else {
        panic!("uid 65534 could make a cgroup: {started:?}");
    }
}

#[test]
fn closing_the_stream_kills_everything() {
    let directory = Directory::new("close");
    for without in [false, true] {
        let mut agent = if without { agent_without_cgroups(&directory) } else { Agent::start() };
        let pid_file = directory.path(if without { "a" } else { "b" });
        let script = format!("trap '' TERM; {} exec sleep 1000", daemon(&pid_file));
        let (_, started) = agent.start_run(sh(&script));
        let (leader, daemon) = (started.number("pid") as i32, read_pid(&pid_file));
        assert_eq!(agent.close().code(), Some(0));
        assert!(!lives(leader) && !lives(daemon));
    }
}

#[test]
fn a_daemon_that_hides_its_run_dies_with_the_agent() {
    let directory = Directory::new("hidden");
    let mut agent = agent_without_cgroups(&directory);
    let pid_file = directory.path("hidden");
    // It drops the environment, too, so that nothing tells whose it was.
    let script = format!(
        "env -i setsid sh -c 'sh -c \"echo \\$\\$ > {0}; exec sleep 1000\" & exit' & while [ ! -s {0} ]; do sleep 0.01; done",
        pid_file.display()
    );
    agent.ask_final(sh(&script));
    let daemon = read_pid(&pid_file);
    assert_eq!(agent.close().code(), Some(0));
    assert!(!lives(daemon));
}

#[test]
fn an_agent_that_is_killed_takes_its_runs_along() {
    let mut agent = Agent::start();
    let (_, running) = agent.start_run(sh("exec sleep 1000"));
    let at = agent.ask_final(json!({"op": "clock"})).number("monotonic_ns") + 3_600_000_000_000_u64;
    let (_, waiting) = agent.start_run(json!({"op": "run", "argv": ["true"], "start_at_ns": at}));
    signal(agent.pid(), Signal::SIGKILL);
    for started in [running, waiting] {
        wait_until("the run is dead", || !lives(started.number("pid") as i32));
        if let Some(cgroup) = started.get("cgroup").as_str().map(Path::new) {
            wait_until("the agent's cgroup is gone", || !cgroup.parent().unwrap().exists());
        }
    }
}

#[test]
fn an_agent_that_is_killed_takes_along_what_has_become_another_user() {
    if !is_root() {
        return;
    }
    let mut agent = Agent::start();
    // The kernel would not kill it: a change of user takes back that it wanted to be killed.
    let (_, started) = agent.start_run(sh("setpriv --reuid 65534 --clear-groups sleep 1000; :"));
    if started.get("cgroup").is_null() {
        println!("skipped: no cgroup of version 2 can be made here");
        return;
    }
    let cgroup = started.get("cgroup").as_str().map(PathBuf::from).unwrap();
    let processes = || fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    wait_until("both are there", || processes().lines().count() == 2);
    let pids: Vec<i32> = processes().lines().map(|pid| pid.parse().unwrap()).collect();
    signal(agent.pid(), Signal::SIGKILL);
    for pid in pids {
        wait_until("the run is dead", || !lives(pid));
    }
    wait_until("the agent's cgroup is gone", || !cgroup.parent().unwrap().exists());
}

#[test]
fn a_runs_cgroup_is_named_as_told_and_removed_with_the_run() {
    let name = format!("storlab-test-{}", std::process::id());
    let mut agent = Agent::start_command(Command::new(PROGRAM).args(["serve", "--cgroup", &name]));
    let (id, started) = agent.start_run(sh("exec sleep 1000"));
    let Some(cgroup) = started.get("cgroup").as_str().map(PathBuf::from) else {
        assert!(
            !is_root() || !Path::new("/sys/fs/cgroup/unified/cgroup.procs").exists(),
            "root can make cgroups"
        );
        println!("skipped: no cgroup of version 2 can be made here");
        return;
    };
    let parent = cgroup.parent().unwrap().to_owned();
    assert!(parent.ends_with(&name));
    assert_eq!(
        fs::read_to_string(cgroup.join("cgroup.procs")).unwrap(),
        format!("{}\n", started.number("pid"))
    );
    agent.ask_final(json!({"op": "stop", "run": id}));
    agent.finish(id);
    assert!(!cgroup.exists() && parent.exists());
    // What a run makes below its cgroup goes with it.
    let mut script =
        String::from("mkdir -p $(sed -n 's,^0::,/sys/fs/cgroup/unified,p' /proc/self/cgroup)/below");
    if !Path::new("/sys/fs/cgroup/unified").exists() {
        script = script.replace("/unified", "");
    }
    assert_eq!(agent.ask_final(sh(&script)).number("code"), 0);
    assert_eq!(
        fs::read_dir(&parent).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(),
        0
    );
    assert_eq!(agent.close().code(), Some(0));
    assert!(!parent.exists());
}

#[test]
fn the_others_of_a_stopped_run_have_its_grace_though_the_first_is_dead() {
    let directory = Directory::new("grace");
    let pid_file = directory.path("pid");
    let mut agent = Agent::start();
    // The first process dies of TERM at once; its child needs a moment to end cleanly.
    let script = format!(
        "sh -c 'trap \"sleep 0.2; echo clean; exit\" TERM; echo $$ > {}; while :; do sleep 0.01; done' & wait",
        pid_file.display()
    );
    let (id, _) = agent.start_run(sh(&script));
    read_pid(&pid_file);
    agent.ask_final(json!({"op": "stop", "run": id, "grace_ns": 20_000_000_000_u64}));
    let events = agent.finish(id);
    assert_eq!(output(&events, "stdout"), "clean\n");
    let exit = events.last().unwrap();
    assert_eq!((exit.get("stopped_by"), exit.number("survivors")), (&json!("TERM"), 0));
}

#[test]
fn a_survivor_that_still_holds_the_output_does_not_keep_the_run() {
    let mut agent = Agent::start();
    let exit = agent.ask_final(sh("sleep 1000 & echo done"));
    assert_eq!((exit.number("code"), exit.number("survivors")), (0, 1));
}

#[test]
fn survivors_that_are_kept_live_until_the_agent_ends_and_hold_nothing_up() {
    let directory = Directory::new("kept");
    let mut agent = Agent::start();
    let pid_file = directory.path("daemon");
    let script = format!(
        "{} while [ ! -s {} ]; do sleep 0.01; done; yes & echo done",
        daemon(&pid_file),
        pid_file.display()
    );
    let exit = agent.ask_final(with(sh(&script), json!({"survivors": "keep"})));
    let daemon_pid = read_pid(&pid_file);
    assert_eq!((exit.number("code"), exit.number("survivors")), (0, 2), "{exit:?}");
    assert!(lives(daemon_pid), "it was to be kept");

    let pid_file = directory.path("stopped");
    let (id, _) = agent
        .start_run(with(sh(&format!("{} exec sleep 1000", daemon(&pid_file))), json!({"survivors": "keep"})));
    let stopped = read_pid(&pid_file);
    agent.ask_final(json!({"op": "stop", "run": id, "grace_ns": 0}));
    assert_eq!(agent.finish_last(id).get("stopped_by"), "KILL");
    assert!(!lives(stopped), "a run that is stopped keeps nothing");

    drop(agent);
    wait_until("what was kept died with the agent", || !lives(daemon_pid));
}

/// A pipe may be told to hold more than a chunk.
#[test]
fn all_that_was_printed_before_the_end_comes_though_survivors_are_kept() {
    if Command::new("python3").arg("-V").output().is_err() {
        println!("skipped: python3 is not installed");
        return;
    }
    let mut agent = Agent::start();
    let print = "import fcntl, os; fcntl.fcntl(1, 1031, 1 << 20); os.write(1, b'x' * 1_000_000)";
    let script = format!("sleep 1000 & sleep 0.3; exec python3 -c \"{print}\"");
    let (id, started) = agent.start_run(with(sh(&script), json!({"survivors": "keep"})));
    signal(agent.pid(), Signal::SIGSTOP); // it reads nothing while the program is alive
    let stat = format!("/proc/{}/stat", started.number("pid"));
    wait_until("the program has ended", || fs::read_to_string(&stat).unwrap().contains(") Z "));
    signal(agent.pid(), Signal::SIGCONT);
    let events = agent.finish(id);
    let exit = events.last().unwrap();
    assert_eq!((exit.number("survivors"), exit.number("dropped")), (1, 0));
    assert_eq!(output(&events, "stdout").len(), 1_000_000);
}

#[test]
fn a_run_in_a_fork_storm_ends() {
    let mut agent = Agent::start();
    let script = "f() { while :; do sleep 0.01 & done; }; for i in 1 2 3 4; do f & done; wait";
    let exit = agent.ask_final(with(sh(script), json!({"timeout_ns": 200_000_000, "grace_ns": 50_000_000})));
    assert_eq!(exit.get("timed_out"), true);
}

#[test]
fn where_the_kernel_makes_no_process_in_a_cgroup_it_moves_there() {
    let name = format!("storlab-test-moves-{}", std::process::id());
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: strace is not installed");
        return;
    }
    let before_5_7 = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=clone3:error=ENOSYS", PROGRAM];
    let mut agent =
        Agent::start_command(Command::new("strace").args(before_5_7).args(["serve", "--cgroup", &name]));
    let (id, started) = agent.start_run(sh("exec sleep 1000"));
    let Some(cgroup) = started.get("cgroup").as_str().map(PathBuf::from) else {
        println!("skipped: no cgroup of version 2 can be made here");
        return;
    };
    assert_eq!(
        fs::read_to_string(cgroup.join("cgroup.procs")).unwrap(),
        format!("{}\n", started.number("pid"))
    );
    agent.ask_final(json!({"op": "stop", "run": id}));
    agent.finish(id);
    assert!(!cgroup.exists());
}
