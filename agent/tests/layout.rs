//! `layout`: the files of a load, as a program of its own.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Directory, PROGRAM};
use serde_json::{Value, json};

/// Exit status, what was recorded, and what was said.
fn lay_out(folder: &Directory, seed: u64, files: &Value) -> (i32, Value, String) {
    let record = folder.path("layout.json");
    let spec = json!({"record": record, "seed": seed, "files": files}).to_string();
    let ended = Command::new(PROGRAM).args(["layout", &spec]).output().unwrap();
    let recorded = fs::read(&record).map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap());
    (ended.status.code().unwrap(), recorded, String::from_utf8(ended.stderr).unwrap())
}

fn file(path: &Path, size: u64, block: Option<u64>) -> Value {
    json!({"path": path, "size": size, "block": block, "reserve": true})
}

#[test]
fn a_seed_decides_the_contents_and_no_two_files_have_the_same() {
    let folder = Directory::new("layout-seeds");
    let [one, other] = ["one", "other"].map(|name| folder.path(name));
    let files = json!([file(&one, 100_000, Some(4096)), file(&other, 100_000, Some(4096))]);
    let mut seen = Vec::new();
    for seed in [1, 2, 1] {
        let (status, recorded, _) = lay_out(&folder, seed, &files);
        assert_eq!((status, &recorded["seed"]), (0, &json!(seed)));
        assert_eq!(recorded["files"][1]["how"], "written");
        seen.push([&one, &other].map(|path| fs::read(path).unwrap()));
        for path in [&one, &other] {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(seen.iter().flatten().all(|data| data.len() == 100_000));
    assert_ne!(seen[0][0], seen[0][1]);
    assert_ne!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[test]
fn what_is_large_enough_stays_and_what_is_not_is_made_again() {
    let folder = Directory::new("layout-sizes");
    let [large, small] = ["large", "small"].map(|name| folder.path(name));
    fs::write(&large, [7; 5000]).unwrap();
    fs::write(&small, [7; 3000]).unwrap();
    let (status, recorded, _) =
        lay_out(&folder, 1, &json!([file(&large, 4096, Some(4096)), file(&small, 4096, Some(4096))]));
    assert_eq!((status, recorded["files"][0]["how"].as_str()), (0, Some("found")));
    assert_eq!(fs::read(&large).unwrap(), [7; 5000]);
    let made = fs::read(&small).unwrap();
    assert!(made.len() == 4096 && !made.starts_with(&[7; 100]));
}

#[test]
fn what_cannot_be_laid_out_whole_is_removed() {
    let folder = Directory::new("layout-failures");
    let path = folder.path("file");
    let (status, recorded, said) = lay_out(&folder, 1, &json!([file(&path, 4096, Some(12))]));
    assert_eq!((status, recorded), (1, Value::Null));
    assert!(said.contains("multiple of 8 bytes") && !path.exists(), "{said}");
    let (status, _, said) = lay_out(&folder, 1, &json!([file(&folder.path("none/file"), 4096, None)]));
    assert!(status == 1 && said.contains("No such file"), "{said}");
    let (status, _, said) = lay_out(&folder, 1, &json!([{"path": "x"}]));
    assert!(status == 2 && said.contains("missing field"), "{said}");
    fs::create_dir(&path).unwrap();
    let (status, _, said) = lay_out(&folder, 1, &json!([file(&path, 4096, None)]));
    assert!(status == 1 && said.contains("no regular file") && path.is_dir(), "{said}");
}
