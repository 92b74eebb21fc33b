//! `steps`: small operations on files, and what they refuse.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use common::{Agent, Directory, Event, is_root, sh, with};
use serde_json::{Value, json};
use storlab_agent::steps::Progress;

fn ask(agent: &mut Agent, steps: Value) -> Event {
    agent.ask_final(json!({"op": "steps", "steps": steps}))
}

/// The result of one step.
fn one(agent: &mut Agent, step: Value) -> Value {
    let event = ask(agent, json!([step]));
    assert!(event.is("steps"), "{event:?}");
    event.get("results")[0].clone()
}

#[test]
fn steps_are_carried_out_in_their_order_and_bring_what_they_read() {
    let directory = Directory::new("steps");
    let mut agent = Agent::start();
    let at = |name: &str| directory.path(name).to_str().unwrap().to_owned();
    let steps = json!([
        {"do": "mkdir", "path": at("a/b"), "parents": true},
        {"do": "mkdir", "path": at("a/c"), "mode": 0o700},
        {"do": "write", "path": at("a/b/file"), "size": 5, "create": 0o640},
        {"do": "write", "path": at("a/b/file"), "size": 2},
        {"do": "symlink", "path": at("a/link"), "target": "b/file"},
        {"do": "read", "path": at("a/b/file")},
        {"do": "read", "path": at("a/link"), "limit": 3},
        {"do": "look", "path": at("a/link")},
        {"do": "look", "path": at("a/b/file")},
        {"do": "names", "path": at("a/c")},
        {"do": "names", "path": at("a"), "targets": true},
        {"do": "contents", "path": at("a/b")},
        {"do": "files", "path": at("")},
        {"do": "unlink", "path": at("a/link")},
        {"do": "rmdir", "path": at("a/c")},
        {"do": "sync", "path": at("a")},
    ]);
    let id = agent.send_with(json!({"op": "steps", "steps": steps}), b"helloHE");
    let event = agent.finish_last(id);
    let results = event.get("results").as_array().unwrap();
    assert_eq!(results.len(), 16, "{event:?}");
    assert!(results.iter().all(|result| result.get("message").is_none()), "{event:?}");
    let sizes: Vec<usize> =
        [5, 6, 9, 10, 11, 12].iter().map(|&step| results[step]["size"].as_u64().unwrap() as usize).collect();
    let mut contents = event.payload.as_slice();
    let mut next = |size: usize| {
        let (own, rest) = contents.split_at(size);
        contents = rest;
        String::from_utf8(own.to_vec()).unwrap()
    };
    assert_eq!(next(sizes[0]), "HEllo");
    assert_eq!(next(sizes[1]), "HEl");
    assert_eq!(next(sizes[2]), "");
    let names = next(sizes[3]);
    assert!(names.contains("link\0b/file\0") && names.contains("c\0\0"), "{names:?}");
    assert_eq!(next(sizes[4]), "file\0HEllo\0");
    assert_eq!(next(sizes[5]), "5 a/b/file\0");
    assert_eq!(results[7]["kind"], "link");
    assert_eq!((&results[8]["kind"], &results[8]["mode"]), (&json!("file"), &json!(0o640)));
    assert_eq!(fs::metadata(directory.path("a/b/file")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert!(!directory.path("a/c").exists() && !directory.path("a/link").exists());
}

#[test]
fn files_that_nobody_has_written_to_are_not_brought_again() {
    let directory = Directory::new("steps-changed");
    let mut agent = Agent::start();
    let place = directory.path("parameters");
    let write = |value: &str| {
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("limit"), value).unwrap();
    };
    write("1");
    let mut asked = |changed: bool| {
        let event = ask(&mut agent, json!([{"do": "contents", "path": place, "changed": changed}]));
        let found = event.get("results")[0]["found"].clone();
        (String::from_utf8(event.payload.clone()).unwrap(), found)
    };
    let (some, nothing) =
        (|value: &str| (format!("limit\0{value}\0"), Value::Null), (String::new(), json!(false)));
    assert_eq!(asked(true), some("1"), "the first time");
    assert_eq!(asked(true), nothing);
    assert_eq!(asked(false), some("1"), "nobody said that it was to have changed");
    write("2");
    assert_eq!(asked(true), some("2"));
    assert_eq!(asked(true), nothing);
    fs::remove_dir_all(&place).unwrap();
    write("2");
    assert_eq!(asked(true), some("2"), "another directory");
    assert_eq!(asked(true), nothing);
    for number in 0..5000 {
        write(&number.to_string());
    }
    assert_eq!(asked(true), some("4999"), "more writes than are counted");
    let gone = asked(true);
    assert!(gone == nothing || gone == some("4999"), "what was left of them, {gone:?}");
    fs::remove_dir_all(&place).unwrap();
    assert_eq!(one(&mut agent, json!({"do": "contents", "path": place, "changed": true}))["errno"], "ENOENT");
}

#[test]
fn the_first_step_that_fails_is_the_last_unless_others_are_to_go_on() {
    let directory = Directory::new("steps-fail");
    let mut agent = Agent::start();
    let made = directory.path("made");
    let steps = json!([{"do": "read", "path": "/no/such"}, {"do": "mkdir", "path": made}]);
    let event = ask(&mut agent, steps.clone());
    assert_eq!(event.get("results").as_array().unwrap().len(), 1, "{event:?}");
    assert_eq!(event.get("results")[0]["errno"], "ENOENT");
    assert!(!made.exists());
    let event = agent.ask_final(json!({"op": "steps", "steps": steps, "go_on": true}));
    assert_eq!(event.get("results").as_array().unwrap().len(), 2, "{event:?}");
    assert!(made.exists());
}

#[test]
fn a_program_among_steps_runs_in_its_turn_and_brings_what_it_prints() {
    let directory = Directory::new("steps-program");
    let mut agent = Agent::start();
    let file = directory.path("made/file");
    let script = "cat \"$0\" && echo \"$GIVEN\" >&2 && echo more >> \"$0\"";
    let steps = json!([
        {"do": "mkdir", "path": directory.path("made")},
        {"do": "write", "path": file, "size": 4, "create": 0o600},
        {"do": "run", "argv": ["sh", "-c", script, file], "env": {"GIVEN": "why"}},
        {"do": "read", "path": file},
        {"do": "run", "argv": ["true"]},
    ]);
    let id = agent.send_with(json!({"op": "steps", "steps": steps}), b"one\n");
    let event = agent.finish_last(id);
    let results = event.get("results");
    assert_eq!(results[2], json!({"size": 4, "code": 0, "errors": 4}), "{event:?}");
    assert_eq!((&results[3]["size"], &results[4]["code"]), (&json!(9), &json!(0)), "{event:?}");
    assert_eq!(String::from_utf8(event.payload.clone()).unwrap(), "one\nwhy\none\nmore\n");
}

#[test]
fn the_steps_after_a_program_that_fails_are_left_out() {
    let directory = Directory::new("steps-failed");
    let mut agent = Agent::start();
    let made = directory.path("made");
    for (argv, code, message, payload) in [
        (json!(["sh", "-c", "echo no >&2; exit 3"]), json!(3), "ended with status 3", "no\n"),
        (json!(["sh", "-c", "kill -9 $$"]), Value::Null, "was killed by SIGKILL", ""),
        (json!(["/no/such"]), Value::Null, "can't execute \"/no/such\": No such file or directory", ""),
        (json!([]), Value::Null, "", ""),
    ] {
        let steps = json!([{"do": "run", "argv": argv}, {"do": "mkdir", "path": made}]);
        let event = ask(&mut agent, steps);
        let results = event.get("results").as_array().unwrap();
        assert_eq!(results.len(), 1, "{event:?}");
        assert_eq!(results[0].get("code").unwrap_or(&Value::Null), &code, "{event:?}");
        assert!(results[0]["message"].as_str().unwrap().contains(message), "{event:?}");
        assert_eq!(event.payload, payload.as_bytes());
        assert!(!made.exists());
    }
}

#[test]
fn a_stop_ends_the_program_that_steps_are_at_and_what_it_started() {
    let directory = Directory::new("steps-stopped");
    let mut agent = Agent::start();
    let (mine, made) = (directory.path("pid"), directory.path("made"));
    let script = format!("sleep 60 & echo $! > {}; wait", mine.display());
    let steps = json!([{"do": "run", "argv": ["sh", "-c", script]}, {"do": "mkdir", "path": made}]);
    let id = agent.send(json!({"op": "steps", "steps": steps, "go_on": true}));
    let pid = common::read_pid(&mine);
    agent.ask_final(json!({"op": "stop", "run": id}));
    let event = agent.finish_last(id);
    let results = event.get("results").as_array().unwrap();
    assert_eq!((results.len(), &results[0]["errno"]), (1, &json!("ECANCELED")), "{event:?}");
    assert!(!common::lives(pid) && !made.exists());
}

#[test]
fn steps_go_on_while_the_program_of_others_runs() {
    let mut agent = Agent::start();
    let slow: Vec<u64> = (0..20)
        .map(|_| agent.send(json!({"op": "steps", "steps": [{"do": "run", "argv": ["sleep", "60"]}]})))
        .collect();
    assert!(one(&mut agent, json!({"do": "look", "path": "/"})).get("message").is_none());
    assert!(agent.ask_final(json!({"op": "shutdown"})).is("done"));
    drop(slow);
}

#[test]
fn a_tree_is_removed_with_all_that_it_holds_however_deep() {
    let directory = Directory::new("steps-tree");
    let mut agent = Agent::start();
    let own = directory.path("own");
    let deep = (0..200).fold(own.clone(), |path, number| path.join(format!("{number}")));
    agent.ask_final(sh(&format!("mkdir --parents {}", deep.display())));
    for number in 0..3_000 {
        fs::write(own.join(format!("file-{number}")), "x").unwrap();
    }
    let outside = directory.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "x").unwrap();
    symlink(&outside, own.join("link")).unwrap();
    let remove = json!({"do": "remove", "path": own, "top": own});
    assert_eq!(one(&mut agent, remove.clone()), json!({"found": true}));
    assert!(!own.exists() && outside.join("kept").exists());
    assert_eq!(one(&mut agent, remove), json!({"found": false}));
}

#[test]
fn what_is_no_folder_of_storlabs_own_is_left_alone() {
    let directory = Directory::new("steps-own");
    let mut agent = Agent::start();
    let (own, foreign) = (directory.path("own"), directory.path("foreign"));
    fs::create_dir_all(foreign.join("inner")).unwrap();
    fs::create_dir_all(own.join("inner")).unwrap();
    symlink(&foreign, directory.path("link")).unwrap();
    symlink(&foreign, own.join("link")).unwrap();
    let link = directory.path("link");
    for (path, top, errno) in [
        (link.clone(), link.clone(), "ELOOP"),           // itself a link
        (link.join("inner"), link.clone(), "ELOOP"),     // in what a link leads to
        (own.join("link/inner"), own.clone(), "ELOOP"),  // by a link within
        (foreign.clone(), own.clone(), "EINVAL"),        // beside it
        (own.join("../foreign"), own.clone(), "EINVAL"), // by a way back
        (Path::new("own").into(), Path::new("own").into(), "EINVAL"),
    ] {
        for name in ["remove", "owned"] {
            let result = one(&mut agent, json!({"do": name, "path": path, "top": top}));
            assert_eq!(result["errno"], errno, "{name} {path:?}: {result}");
        }
    }
    assert!(foreign.join("inner").exists());
    let last = json!({"do": "remove", "path": own.join("link"), "top": own});
    assert_eq!(one(&mut agent, last), json!({"found": true})); // the link itself is its own
    assert!(foreign.join("inner").exists() && own.join("inner").exists());
}

#[test]
fn a_folder_of_another_user_is_left_alone() {
    if !is_root() {
        println!("skipped: only root can make a folder another user's");
        return;
    }
    let directory = Directory::new("steps-user");
    let mut agent = Agent::start();
    let own = directory.path("own");
    fs::create_dir_all(own.join("inner")).unwrap();
    std::os::unix::fs::chown(&own, Some(65_534), None).unwrap();
    let result = one(&mut agent, json!({"do": "remove", "path": own.join("inner"), "top": own}));
    assert_eq!(
        (&result["errno"], &result["message"]),
        (&json!("EPERM"), &json!("it belongs to another user"))
    );
    assert!(own.join("inner").exists());
    let nothing = json!({"do": "remove", "path": own.join("nothing"), "top": own});
    assert_eq!(one(&mut agent, nothing), json!({"found": false}));
}

#[test]
fn what_is_mounted_in_a_tree_outlives_its_removal() {
    if !is_root() {
        println!("skipped: only root can mount a tmpfs");
        return;
    }
    let directory = Directory::new("steps-mount");
    let mut agent = Agent::start();
    let own = directory.path("own");
    let mounted = own.join("a/mounted");
    fs::create_dir_all(&mounted).unwrap();
    fs::write(own.join("file"), "x").unwrap();
    let none: Option<&str> = None;
    nix::mount::mount(none, &mounted, Some("tmpfs"), nix::mount::MsFlags::empty(), none).unwrap();
    fs::write(mounted.join("kept"), "x").unwrap();
    let result = one(&mut agent, json!({"do": "remove", "path": own, "top": own}));
    let kept = mounted.join("kept").exists();
    nix::mount::umount(&mounted).unwrap();
    assert!(kept && !own.join("file").exists());
    assert_eq!(result["errno"], "EXDEV", "{result}");
}

#[test]
fn what_one_request_may_ask_and_bring_is_bounded() {
    let directory = Directory::new("steps-bounds");
    let mut agent = Agent::start();
    let large = directory.path("large");
    fs::write(&large, vec![0; 700_000]).unwrap();
    let read = json!({"do": "read", "path": large});
    let event = ask(&mut agent, json!([read, read]));
    assert_eq!(event.get("results")[0]["size"], 700_000);
    assert_eq!(event.get("results")[1]["errno"], "EFBIG", "{event:?}");
    assert_eq!(event.payload.len(), 700_000);
    let endless = ask(&mut agent, json!([{"do": "read", "path": "/dev/zero", "limit": 10}]));
    assert_eq!(endless.payload, [0; 10]);
    let look = json!({"do": "look", "path": "/"});
    for (request, payload) in [
        (json!({"steps": []}), &b""[..]),
        (json!({"steps": vec![look.clone(); 257]}), b""),
        (json!({"steps": [look]}), b"x"),
        (json!({"steps": [{"do": "write", "path": "/no/such", "size": 2}]}), b"x"),
        (
            json!({"steps": [{"do": "write", "path": "/no/such", "size": u64::MAX}, {"do": "write", "path": "/no/such", "size": 3}]}),
            b"xx",
        ),
        (json!({"steps": [{"do": "look"}]}), b""),
        (json!({"steps": [{"do": "look", "path": "/", "top": "/"}]}), b""),
        (json!({"steps": [{"do": "walk", "path": "/"}]}), b""),
    ] {
        let id = agent.send_with(with(json!({"op": "steps"}), request.clone()), payload);
        assert!(agent.finish_last(id).is("error"), "{request}");
    }
    let longest = "x/".repeat(2_000);
    let steps = vec![json!({"do": "look", "path": longest}); 14];
    let event = agent.ask_final(json!({"op": "steps", "steps": steps, "go_on": true}));
    assert_eq!(event.get("results").as_array().unwrap().len(), 14, "{event:?}");
}

#[test]
fn steps_hold_up_no_other_request_and_can_be_stopped() {
    let directory = Directory::new("steps-stop");
    let mut agent = Agent::start();
    let whole = directory.path("whole");
    fs::create_dir(&whole).unwrap();
    for number in 0..20_000 {
        fs::write(whole.join(format!("{number}")), "").unwrap();
    }
    let ids: Vec<u64> = (0..20)
        .map(|_| agent.send(json!({"op": "steps", "steps": vec![json!({"do": "files", "path": whole}); 4]})))
        .collect();
    assert!(agent.ask_final(json!({"op": "clock"})).is("clock"));
    for &id in &ids {
        let stop = agent.send(json!({"op": "stop", "run": id}));
        let stopped = agent.finish_last(stop);
        assert!(stopped.is("done") || stopped.get("errno") == "ESRCH", "{stopped:?}");
    }
    for id in ids {
        let event = agent.finish_last(id);
        assert!(event.is("steps") || event.get("errno") == "ECANCELED", "{event:?}");
    }
    assert!(one(&mut agent, json!({"do": "look", "path": whole}))["kind"] == "directory");
}

#[test]
fn a_request_that_was_stopped_when_it_had_come_to_a_program_does_not_start_it() {
    let steps =
        json!({"steps": [{"do": "run", "argv": ["true"]}, {"do": "look", "path": "/"}], "go_on": true});
    let mut request = Progress::new(1, serde_json::from_value(steps).unwrap());
    request.advance(&AtomicBool::new(false));
    assert!(request.program().is_some() && !request.is_over());
    request.advance(&AtomicBool::new(true));
    assert!(request.program().is_none() && request.is_over());
    let errors: Vec<_> = request.results.iter().map(|result| result.errno.as_deref()).collect();
    assert_eq!(errors, [Some("ECANCELED")]);
}
