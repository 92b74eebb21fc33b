//! Programs that are confined to a directory, and devices for them.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;
use serde_json::{Value, json};

use super::{Agent, Directory, output, sh, with};

/// A directory with one below it that may be written to.
pub struct Place {
    pub directory: Directory,
    pub agent: Agent,
}

impl Place {
    pub fn new(name: &str) -> Self {
        let directory = Directory::new(name);
        fs::create_dir(directory.path("inside")).unwrap();
        fs::write(directory.path("outside"), "precious").unwrap();
        Self { directory, agent: Agent::start() }
    }

    /// The exit status of a script, and what it printed, that may write to the directory inside, and to `devices`.
    pub fn run(&mut self, script: &str, devices: &[String]) -> (Option<u64>, String) {
        self.run_with(script, json!({"devices": devices}))
    }

    /// The same with these fields of the confinement.
    pub fn run_with(&mut self, script: &str, mut confine: Value) -> (Option<u64>, String) {
        confine["writable"] = json!([self.directory.path("inside")]);
        let cwd = self.directory.path("inside");
        let events = self.agent.ask(with(sh(script), json!({"confine": confine, "cwd": cwd})));
        assert_eq!(events[0].get("confined"), &Value::Bool(true), "{events:?}");
        (events.last().unwrap().get("code").as_u64(), output(&events, "stdout") + &output(&events, "stderr"))
    }

    pub fn refused(&mut self, script: &str) {
        let (code, printed) = self.run(script, &[]);
        assert_ne!(code, Some(0), "{script}: {printed}");
    }
}

/// A loop device of its own, detached when dropped.
pub struct Loop(pub String);

impl Loop {
    pub fn new(file: &Path) -> Self {
        fs::write(file, vec![7; 1 << 20]).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Self(String::from_utf8(made.stdout).unwrap().trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

pub fn is_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("skipped: this test needs root");
    }
    root
}
