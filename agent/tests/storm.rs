//! `files`: a storm of many small files, as a program of its own.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Directory, PROGRAM, is_root};
use serde_json::{Value, json};

fn spec(root: &Path) -> Value {
    json!({
        "root": root, "files": 500, "sizes": {"kind": "uniform", "min": 0, "max": 9000}, "granule": 1, "block": 4096,
        "tree": {"depth": 2, "fan_out": 3, "shared": false, "spread": "sequential"}, "workers": 3,
        "phases": ["create", "read", "stat", "delete"], "order": "same", "fsync": "none", "direct": false,
        "end_sync": false, "drop_caches": false, "verify": true, "phase_limit_ns": null, "seed": 1,
    })
}

fn with(mut spec: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

/// Exit status, document, and what was said.
fn storm(folder: &Directory, spec: &Value) -> (i32, Value, String) {
    let file = folder.path("spec.json");
    fs::write(&file, spec.to_string()).unwrap();
    let ended = Command::new(PROGRAM).arg("files").arg(&file).output().unwrap();
    let document = serde_json::from_slice(&ended.stdout).unwrap_or(Value::Null);
    (ended.status.code().unwrap(), document, String::from_utf8(ended.stderr).unwrap())
}

fn phase<'a>(document: &'a Value, name: &str) -> &'a Value {
    let phases = document["phases"].as_array().unwrap();
    phases.iter().find(|phase| phase["phase"] == name).unwrap_or_else(|| panic!("no {name} in {document}"))
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_below(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn every_file_is_made_read_looked_at_and_deleted_and_nothing_is_left() {
    for changes in [
        json!({}),
        json!({"order": "random", "fsync": "file", "end_sync": true}),
        json!({"tree": {"depth": 1, "fan_out": 7, "shared": true, "spread": "round-robin"}, "fsync": "directory"}),
        json!({"tree": {"depth": 0, "fan_out": 1, "shared": true, "spread": "sequential"}, "fsync": "data"}),
    ] {
        let folder = Directory::new("storm-all");
        let root = folder.path("storm");
        let (status, document, said) = storm(&folder, &with(spec(&root), changes.clone()));
        assert_eq!((status, &document["error"]), (0, &Value::Null), "{changes}: {said}");
        for name in ["create", "read", "stat", "delete"] {
            let phase = phase(&document, name);
            assert_eq!(phase["files"], 500, "{changes}: {name}");
            assert_eq!(phase["operations"][name]["count"], 500);
            let bins = phase["operations"][name]["bins"].as_array().unwrap();
            assert_eq!(bins.iter().map(|bin| bin[2].as_u64().unwrap()).sum::<u64>(), 500);
            let shares =
                phase["workers"].as_array().unwrap().iter().map(|worker| &worker[0]).collect::<Vec<_>>();
            assert_eq!(shares, [167, 167, 166]);
            assert_eq!(
                phase["progress"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>(),
                500
            );
        }
        assert_eq!(phase(&document, "create")["bytes"], phase(&document, "read")["bytes"]);
        assert_eq!(phase(&document, "mkdir")["files"], phase(&document, "rmdir")["files"]);
        let syncs = phase(&document, "create")["operations"]["sync"]["count"].as_u64();
        assert_eq!(syncs, (changes.get("fsync").is_some()).then_some(500));
        assert!(!root.exists());
    }
}

#[test]
fn the_same_seed_gives_the_same_files_whoever_works_and_another_gives_others() {
    let folder = Directory::new("storm-seed");
    let mut contents = Vec::new();
    for (number, changes) in
        [json!({}), json!({"workers": 1, "block": 64}), json!({"seed": 2})].iter().enumerate()
    {
        let root = folder.path(&format!("storm{number}"));
        let own = json!({"phases": ["create"], "tree": {"depth": 0, "fan_out": 1, "shared": true, "spread": "sequential"}});
        assert_eq!(storm(&folder, &with(with(spec(&root), own), changes.clone())).0, 0);
        let mut files = files_below(&root);
        files.sort();
        assert_eq!(files.len(), 500);
        contents.push(files.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>());
    }
    assert!(contents[0] == contents[1]);
    assert!(contents[0] != contents[2]);
}

#[test]
fn a_byte_that_changed_is_found_and_named() {
    let folder = Directory::new("storm-verify");
    let root = folder.path("storm");
    let sizes = json!({"kind": "fixed", "bytes": 5000});
    let made = with(spec(&root), json!({"phases": ["create"], "sizes": sizes}));
    assert_eq!(storm(&folder, &made).0, 0);
    let victim = files_below(&root).pop().unwrap();
    let mut content = fs::read(&victim).unwrap();
    content[4711] ^= 1;
    fs::write(&victim, &content).unwrap();

    let (status, document, said) = storm(&folder, &with(made.clone(), json!({"phases": ["read"]})));
    let error = &document["error"];
    assert_eq!(status, 1);
    assert_eq!((&error["phase"], &error["operation"]), (&json!("read"), &json!("read")));
    assert_eq!(error["path"], victim.to_str().unwrap());
    assert!(error["mismatch"].as_str().unwrap().contains("byte 4711"), "{error}");
    assert!(said.contains(victim.to_str().unwrap()), "{said}");
    let unverified = with(made.clone(), json!({"phases": ["read"], "verify": false}));
    assert_eq!(storm(&folder, &unverified).0, 0);

    fs::write(&victim, &content[..100]).unwrap();
    for (phase, says) in [("read", "ends after 100"), ("stat", "has 100 bytes, not 5000")] {
        let document = storm(&folder, &with(made.clone(), json!({"phases": [phase]}))).1;
        assert!(document["error"]["mismatch"].as_str().unwrap().contains(says), "{document}");
    }
    fs::remove_file(&victim).unwrap();
    for phase in ["read", "stat", "delete"] {
        let (status, document, _) = storm(&folder, &with(made.clone(), json!({"phases": [phase]})));
        assert_eq!((status, &document["error"]["errno"]), (1, &json!("ENOENT")), "{phase}");
    }
}

#[test]
fn a_limit_of_time_ends_a_phase_and_the_next_takes_what_is_there() {
    let folder = Directory::new("storm-limit");
    let root = folder.path("storm");
    let endless = json!({"files": 100_000_000, "phase_limit_ns": 200_000_000, "phases": ["create", "stat"]});
    let (status, document, said) = storm(&folder, &with(spec(&root), endless));
    assert_eq!(status, 0, "{said}");
    let created = phase(&document, "create");
    assert_eq!(created["limited"], true);
    assert!(created["elapsed_ns"].as_u64().unwrap() >= 200_000_000);
    assert_eq!(files_below(&root).len() as u64, created["files"].as_u64().unwrap());
    assert!(phase(&document, "stat")["files"].as_u64() <= created["files"].as_u64());
}

#[test]
fn what_is_there_already_is_not_touched() {
    let folder = Directory::new("storm-there");
    let root = folder.path("storm");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("mine"), "mine").unwrap();
    let (status, document, _) = storm(&folder, &spec(&root));
    assert_eq!((status, &document["error"]["errno"]), (1, &json!("EEXIST")));
    assert_eq!(fs::read_to_string(root.join("mine")).unwrap(), "mine");
}

#[test]
fn what_can_not_be_is_refused_before_anything_is_done() {
    let folder = Directory::new("storm-refused");
    let root = folder.path("storm");
    for changes in
        [json!({"files": 0}), json!({"surprise": 1}), json!({"phases": ["mkdir"]}), json!({"files": -1})]
    {
        let (status, _, said) = storm(&folder, &with(spec(&root), changes.clone()));
        assert_eq!(status, 2, "{changes}");
        assert!(said.contains("spec.json"), "{said}");
    }
    let ended = Command::new(PROGRAM).arg("files").output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(!root.exists());
}

#[test]
fn direct_writes_are_read_back() {
    let folder =
        Directory(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("direct-{}", std::process::id())));
    fs::create_dir_all(&folder.0).unwrap();
    let direct = json!({"direct": true, "granule": 4096, "block": 8192});
    let (status, document, said) = storm(&folder, &with(spec(&folder.path("storm")), direct));
    if document["error"]["errno"] == "EINVAL" {
        eprintln!("skipped: the file system of {} takes no direct I/O", folder.0.display());
        return;
    }
    assert_eq!(status, 0, "{said}");
}

#[test]
fn a_full_file_system_is_told_with_the_path() {
    if !is_root() {
        eprintln!("skipped: it mounts a file system, which needs root");
        return;
    }
    let folder = Directory::new("storm-full");
    let small = folder.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(&small).status();
    assert!(mounted.unwrap().success());
    let (status, document, _) = storm(&folder, &spec(&small.join("storm")));
    assert!(Command::new("umount").arg(&small).status().unwrap().success());
    assert_eq!((status, &document["error"]["errno"]), (1, &json!("ENOSPC")), "{document}");
    assert!(document["error"]["path"].as_str().unwrap().starts_with(small.join("storm").to_str().unwrap()));
}

#[test]
fn a_specification_without_an_end_is_refused() {
    let ended = Command::new(PROGRAM).args(["files", "/dev/zero"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(said, "storlab-agent: /dev/zero: a specification has 16 MiB at most\n");
}
