//! `read`, `write` and `sample`.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::{Agent, Directory, is_root, sh};
use serde_json::{Value, json};

fn write(agent: &mut Agent, request: Value, payload: &[u8]) -> common::Event {
    let id = agent.send_with(request, payload);
    agent.finish_last(id)
}

fn contents(events: &[common::Event]) -> Vec<u8> {
    events.iter().filter(|event| event.is("data")).flat_map(|event| event.payload.clone()).collect()
}

#[test]
fn what_is_written_can_be_read() {
    let directory = Directory::new("write");
    let path = directory.path("file");
    let mut agent = Agent::start();
    let data: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
    let done = write(&mut agent, json!({"op": "write", "path": path, "sync": true}), &data);
    assert_eq!(done.number("size"), 1_000_000);
    let events = agent.ask(json!({"op": "read", "path": path}));
    assert!(contents(&events) == data);
    assert!(events.iter().all(|event| event.payload.len() <= 262_144));
    assert_eq!(events.last().unwrap().number("size"), 1_000_000);
    let part = agent.ask(json!({"op": "read", "path": path, "offset": 999_990, "limit": 5}));
    assert_eq!(contents(&part), &data[999_990..999_995]);
    assert_eq!(agent.ask_final(json!({"op": "read", "path": path, "offset": 2_000_000})).number("size"), 0);
    assert_eq!(agent.ask_final(json!({"op": "read", "path": path, "limit": 0})).number("size"), 0);
}

#[test]
fn a_write_changes_what_it_covers_unless_it_truncates() {
    let directory = Directory::new("cover");
    let path = directory.path("file");
    let mut agent = Agent::start();
    write(&mut agent, json!({"op": "write", "path": path}), b"abcdef");
    write(&mut agent, json!({"op": "write", "path": path, "offset": 2}), b"XY");
    assert_eq!(fs::read(&path).unwrap(), b"abXYef");
    write(&mut agent, json!({"op": "write", "path": path, "truncate": true}), b"new");
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(
        write(&mut agent, json!({"op": "write", "path": path, "truncate": true}), b"").number("size"),
        0
    );
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn a_file_that_is_made_has_the_mode_that_was_asked_for() {
    let directory = Directory::new("mode");
    let mut agent = Agent::start();
    for (name, fields, expected) in [("default", json!({}), 0o644), ("wide", json!({"mode": 0o777}), 0o777)] {
        let path = directory.path(name);
        write(&mut agent, common::with(json!({"op": "write", "path": path}), fields), b"x");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, expected);
    }
}

#[test]
fn a_file_that_can_not_be_had_is_named_with_the_reason() {
    let mut agent = Agent::start();
    for (request, errno) in [
        (json!({"op": "read", "path": "/no/such"}), "ENOENT"),
        (json!({"op": "read", "path": "/etc"}), "EISDIR"),
        (json!({"op": "write", "path": "/no/such"}), "ENOENT"),
        (json!({"op": "write", "path": "/etc"}), "EISDIR"),
    ] {
        let event = agent.ask_final(request.clone());
        assert_eq!(event.get("errno"), errno, "{request}: {event:?}");
        assert!(event.get("message").as_str().unwrap().contains(request["path"].as_str().unwrap()));
    }
}

#[test]
fn a_full_file_system_is_told() {
    if !is_root() {
        println!("skipped: only root can mount a tmpfs");
        return;
    }
    let directory = Directory::new("full");
    let none: Option<&str> = None;
    nix::mount::mount(none, &directory.0, Some("tmpfs"), nix::mount::MsFlags::empty(), Some("size=64k"))
        .unwrap();
    let mut agent = Agent::start();
    let event = write(&mut agent, json!({"op": "write", "path": directory.path("file")}), &[0; 200_000]);
    nix::mount::umount(&directory.0).unwrap();
    assert_eq!(event.get("errno"), "ENOSPC");
    assert!(event.get("message").as_str().unwrap().contains("of 200000 bytes are written"), "{event:?}");
}

#[test]
fn an_endless_read_can_be_stopped() {
    let mut agent = Agent::start();
    let id = agent.send(json!({"op": "read", "path": "/dev/zero"}));
    assert!(agent.next_of(id).is("data"));
    let stop = agent.send(json!({"op": "stop", "run": id}));
    assert!(agent.finish_last(stop).is("done"));
    let events = agent.finish(id);
    let size = contents(&events).len() as u64 + 262_144;
    assert_eq!(events.last().unwrap().number("size"), size);
}

#[test]
fn a_pipe_that_nobody_writes_holds_up_no_other_file() {
    let directory = Directory::new("fifo-read");
    let fifo = directory.path("fifo");
    let mut agent = Agent::start();
    agent.ask_final(sh(&format!("mkfifo {}", fifo.display())));
    assert_eq!(agent.ask_final(json!({"op": "read", "path": fifo})).number("size"), 0);
    assert_eq!(agent.ask_final(json!({"op": "write", "path": fifo})).get("errno"), "ENXIO");
    assert!(agent.ask_final(json!({"op": "read", "path": "/proc/version"})).number("size") > 0);
}

#[test]
fn samples_are_taken_as_often_as_asked() {
    let mut agent = Agent::start();
    let paths = ["/proc/uptime", "/no/such", "/proc/version"];
    let events = agent.ask(json!({"op": "sample", "paths": paths, "interval_ns": 5_000_000, "count": 4}));
    assert_eq!(events.len(), 5);
    assert_eq!(events[4].number("ticks"), 4);
    let version = fs::read("/proc/version").unwrap();
    for event in &events[..4] {
        let sizes: Vec<i64> =
            event.get("sizes").as_array().unwrap().iter().map(|size| size.as_i64().unwrap()).collect();
        assert_eq!(sizes.len(), 3);
        assert_eq!((sizes[1], sizes[2]), (-1, version.len() as i64));
        assert_eq!(event.payload.len() as i64, sizes[0] + sizes[2]);
        assert!(event.payload.ends_with(&version));
    }
    // The ticks stay on the grid of the first, however late each was taken.
    let due: Vec<u64> =
        events[..4].iter().map(|event| event.number("monotonic_ns") - event.number("late_ns")).collect();
    assert!(due.iter().all(|at| (at - due[0]).is_multiple_of(5_000_000)), "{due:?}");
    assert!(due.is_sorted_by(|a, b| a < b));
}

#[test]
fn a_sample_goes_on_until_it_is_stopped() {
    let mut agent = Agent::start();
    let id = agent.send(json!({"op": "sample", "paths": ["/proc/stat"], "interval_ns": 1_000_000}));
    for _ in 0..20 {
        assert!(agent.next_of(id).is("sample"));
    }
    assert!(agent.ask_final(json!({"op": "stop", "run": id})).is("done"));
    assert!(agent.finish_last(id).number("ticks") >= 20);
}

#[test]
fn a_file_that_vanishes_reads_as_minus_one() {
    let mut agent = Agent::start();
    let (run, started) = agent.start_run(sh("exec sleep 1000"));
    let path = format!("/proc/{}/stat", started.number("pid"));
    let id = agent.send(json!({"op": "sample", "paths": [path], "interval_ns": 1_000_000}));
    assert!(agent.next_of(id).get("sizes")[0].as_i64().unwrap() > 0);
    agent.ask_final(json!({"op": "stop", "run": run}));
    agent.finish(run);
    common::wait_until("the file is gone", || agent.next_of(id).get("sizes")[0] == -1);
}

#[test]
fn a_sample_that_fits_into_no_frame_is_refused() {
    let directory = Directory::new("large");
    let path = directory.path("large");
    fs::write(&path, vec![0; 3 << 20]).unwrap();
    let mut agent = Agent::start();
    let event = agent.ask_final(json!({"op": "sample", "paths": [path], "interval_ns": 1_000_000}));
    assert_eq!(event.get("errno"), "EFBIG");
}
