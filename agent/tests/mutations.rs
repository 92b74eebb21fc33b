//! Broken requests, by the thousand, against the real program: it answers, or ends with status 3. It never panics.

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use common::{Directory, PROGRAM, frame};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};
use storlab_agent::protocol::PREFACE;

/// What is most likely to be misunderstood.
const SYNTAX: &[u8] = b"\"{}[],:-09eE\\\0\xff";
/// Change it to see other mutations; it is fixed so that a failure can be repeated.
const SEED: [u8; 32] = *b"storlab agent mutations, seed 01";

/// Requests of each kind, harmless even if a number in them changes.
fn requests() -> Vec<Vec<u8>> {
    let file = "file"; // relative, so that no mutation writes elsewhere
    let headers = [
        json!({"id": 2, "op": "clock"}),
        json!({"id": 3, "op": "facts", "tools": {"true": ["true"]}}),
        json!({"id": 4, "op": "run", "argv": ["true"], "env": {"A": "b", "C": null}, "cwd": "/", "stdin": "stream",
               "stdout": "discard", "stderr": "stream", "timeout_ns": 1_000_000_000, "grace_ns": 1000}),
        json!({"id": 5, "op": "stdin", "run": 4, "eof": true}),
        json!({"id": 6, "op": "stop", "run": 4, "grace_ns": 5}),
        json!({"id": 7, "op": "read", "path": file, "offset": 1, "limit": 2}),
        json!({"id": 8, "op": "write", "path": file, "offset": 0, "truncate": true, "mode": 420, "sync": false}),
        json!({"id": 9, "op": "sample", "paths": ["/proc/uptime", "/no"], "interval_ns": 1000, "count": 3}),
        json!({"id": 12, "op": "steps", "go_on": true, "steps": [
            {"do": "mkdir", "path": "d", "mode": 448, "parents": false}, {"do": "look", "path": "d"},
            {"do": "write", "path": file, "size": 4, "create": 420}, {"do": "read", "path": file, "limit": 3},
            {"do": "symlink", "path": "l", "target": "f"}, {"do": "names", "path": "d", "targets": true},
            {"do": "contents", "path": "d"}, {"do": "files", "path": "d"}, {"do": "unlink", "path": "l"}, {"do": "rmdir", "path": "d"},
            {"do": "sync", "path": "d"}]}),
        json!({"id": 13, "op": "steps", "steps": [{"do": "owned", "path": "/proc/no/d", "top": "/proc/no"},
            {"do": "remove", "path": "/proc/no/d", "top": "/proc/no"}]}),
        json!({"id": 10, "op": "hello", "protocol": 1, "version": "x"}),
        json!({"id": 11, "op": "shutdown"}),
    ];
    let with_data = |header: &Value| header["op"] == "write" || header["id"] == 12;
    headers.iter().map(|header| frame(header, if with_data(header) { b"data" } else { b"" })).collect()
}

fn mutate(random: &mut TestRng, bytes: &mut Vec<u8>) {
    let pick = |random: &mut TestRng, below: usize| random.next_u32() as usize % below.max(1);
    for _ in 0..=pick(random, 3) {
        if bytes.is_empty() {
            return;
        }
        let at = pick(random, bytes.len());
        match pick(random, 6) {
            0 => bytes[at] = random.next_u32() as u8,
            1 => bytes[at] ^= 1 << pick(random, 8),
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, SYNTAX[pick(random, SYNTAX.len())]),
            4 => bytes.truncate(at.max(1)),
            _ => {
                let piece = bytes[at..(at + pick(random, 16)).min(bytes.len())].to_vec();
                let to = pick(random, bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
}

/// Keeps the frame's lengths right, so that the mutation reaches the header.
fn mutate_header(random: &mut TestRng, bytes: &[u8]) -> Vec<u8> {
    let header_length = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    let mut header = bytes[6..6 + header_length].to_vec();
    mutate(random, &mut header);
    let mut out = Vec::new();
    storlab_agent::protocol::encode(&mut out, &header, &bytes[6 + header_length..]).unwrap();
    out
}

/// How many times as many as usual: for `make fuzz`, which goes on from the same seed.
fn budget() -> u32 {
    std::env::var("STORLAB_FUZZ").map_or(1, |times| times.parse().expect("STORLAB_FUZZ should be a number"))
}

#[test]
fn mutated_requests_are_answered_or_end_the_session() {
    let directory = Directory::new("mutations");
    let originals = requests();
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &SEED);
    let hello = frame(&json!({"id": 1, "op": "hello", "protocol": 1, "version": "x"}), &[]);
    let (mut broken, mut answered) = (0, 0);
    for round in 0..400 * budget() {
        let mut stream = [PREFACE.to_vec(), hello.clone()].concat();
        for _ in 0..8 {
            let original = &originals[random.next_u32() as usize % originals.len()];
            if round % 2 == 0 {
                stream.extend(mutate_header(&mut random, original));
            } else {
                let mut bytes = original.clone();
                mutate(&mut random, &mut bytes);
                stream.extend(bytes);
            }
        }
        let (code, events) = play(&stream, &directory);
        assert!(code == Some(0) || code == Some(3), "round {round}: {code:?}");
        if code == Some(3) {
            broken += 1;
        }
        answered += events.iter().filter(|event| event["event"] == "error").count();
    }
    println!("{broken} sessions ended with status 3, {answered} requests were answered with an error");
    assert!(broken > 0 && answered > 0);
}

/// Plays a stream and gives the exit status and all events.
fn play(stream: &[u8], directory: &Directory) -> (Option<i32>, Vec<Value>) {
    let mut child = Command::new(PROGRAM)
        .arg("serve")
        .current_dir(&directory.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(stream);
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    (child.wait().unwrap().code(), events(&output))
}

fn events(output: &[u8]) -> Vec<Value> {
    let mut decoder = storlab_agent::protocol::Decoder::default();
    decoder.push(output);
    let mut events = Vec::new();
    while let Some(frame) = decoder.next_frame().unwrap() {
        events.push(serde_json::from_slice(frame.header).unwrap());
    }
    events
}
