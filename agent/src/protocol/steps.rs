//! `steps`: several small operations on files in one request, without a process for each, and programs among them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::frame::Failure;
use super::request::{Output, Run, StdinKind, Survivors, default_grace};
use crate::confine::Confinement;

/// Steps of one request, at most.
pub const MAX_STEPS: usize = 256;
/// Bytes of contents and listings that one request may bring.
pub const MAX_CONTENTS: usize = 1_048_576;
/// What is said of a failure is cut there,
const LONGEST_MESSAGE: usize = 1_024;
/// and once so much was said, there: so that what is said of all steps fits into one header.
const MUCH: usize = 16_384;
const SHORT_MESSAGE: usize = 100;

/// `steps`: carried out one after the other.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    pub steps: Vec<Step>,
    /// Carry out the others, too, where one fails.
    #[serde(default)]
    pub go_on: bool,
    /// What the `write` steps write, one after the other.
    #[serde(skip)]
    pub data: Vec<u8>,
}

/// One small operation. No step follows a symbolic link in the last component of its path but `read` and `write`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    Look {
        path: String,
    },
    Mkdir {
        path: String,
        #[serde(default = "directory_mode")]
        mode: u32,
        /// Make those above it as well, and let it be where it is there.
        #[serde(default)]
        parents: bool,
    },
    Rmdir {
        path: String,
    },
    Unlink {
        path: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    /// A file's contents, or as much of them as `limit`.
    Read {
        path: String,
        /// Bytes; more are left out.
        #[serde(default = "whole")]
        limit: u64,
    },
    Readlink {
        path: String,
    },
    /// Write to a file in one go, as files of sysfs and configfs need it.
    Write {
        path: String,
        /// Bytes, of the request's payload.
        size: usize,
        /// Make it where there is none, with these permissions; what it held is dropped.
        #[serde(default)]
        create: Option<u32>,
    },
    /// Give a file this size; made, without blocks of its own, where there is none.
    Resize {
        path: String,
        /// Bytes.
        size: u64,
    },
    /// Give a file or directory, which is no link, to a user and a group.
    Own {
        path: String,
        user: u32,
        group: u32,
    },
    /// Let everybody pass through a directory, which is no link.
    OpenUp {
        path: String,
    },
    Names {
        path: String,
        /// With where symbolic links lead.
        #[serde(default)]
        targets: bool,
    },
    /// What small files in a directory hold, such as a kernel module's parameters.
    Contents {
        path: String,
        /// Only where somebody may have written to one of them since they were last asked for in this way.
        #[serde(default)]
        changed: bool,
    },
    /// Regular files in a directory and all below it, and their sizes.
    Files {
        path: String,
    },
    /// Whether something is there that Storlab made: see [`crate::steps::own`].
    Owned {
        path: String,
        /// The outermost of Storlab's own folders that it lies in, or itself.
        top: String,
    },
    /// The same, and remove it with all that it holds.
    Remove {
        path: String,
        /// As with `owned`.
        top: String,
    },
    /// Write back what is held in memory: of all file systems, or of that of a path.
    Sync {
        #[serde(default)]
        path: Option<String>,
    },
    /// Run a program, which has to end with status 0.
    Run(Program),
}

/// A program among steps. It brings what it printed, and then what it printed as errors: the beginning of each.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    argv: Vec<String>,
    /// Added to the agent's environment; `None` removes a variable.
    #[serde(default)]
    env: BTreeMap<String, Option<String>>,
    /// What alone it may write to; all that the agent may, where it is `None`.
    #[serde(default)]
    confine: Option<Confinement>,
}

impl Program {
    /// As if it had been asked for by itself.
    pub fn as_run(&self) -> Run {
        Run {
            argv: self.argv.clone(),
            env: self.env.clone(),
            cwd: None,
            stdin: StdinKind::None,
            stdout: Output::Stream,
            stderr: Output::Stream,
            most_output: None,
            timeout_ns: None,
            grace_ns: default_grace(),
            start_at_ns: None,
            name: None,
            confine: self.confine.clone(),
            survivors: Survivors::Kill,
            count: false,
        }
    }
}

/// What came of a step; fields that don't belong to it are left out.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct StepResult {
    /// Bytes: of a file, of what was written, or of what it adds to the answer's payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Of what is there: `file`, `directory`, `link`, `block`, `character`, `pipe` or `socket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Bytes of the blocks that it takes up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// The file system that it is on, as `stat(2)` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u64>,
    /// Of `owned` and `remove`: whether there was anything. Of `contents` with `changed`: whether they may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<bool>,
    /// Of a program: its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Of a program: what killed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Of a program: bytes that it printed as errors, after the `size` of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Why it could not be carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The system's error, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
}

impl StepResult {
    /// Something of this many bytes.
    pub fn of_size(size: usize) -> Self {
        Self { size: Some(size as u64), ..Self::default() }
    }

    /// A program that ran, without what it printed; `said`: as for `failed`.
    pub fn of_program(outcome: &Event, said: usize) -> Self {
        let exit = match outcome {
            Event::Exit(exit) => exit,
            Event::Error(failure) => return Self::failed(failure.clone(), said),
            _ => return Self::failed(Failure::new("how it ended is unknown"), said),
        };
        let (message, errno) = match (exit.stopped_by, exit.code, &exit.signal) {
            (Some(_), _, _) => (Some("it was stopped".into()), Some("ECANCELED".into())),
            (None, Some(0), _) => (None, None),
            (None, Some(code), _) => (Some(format!("ended with status {code}")), None),
            (None, None, signal) => {
                (Some(format!("was killed by {}", signal.as_deref().unwrap_or("a signal"))), None)
            }
        };
        Self { code: exit.code, signal: exit.signal.clone(), message, errno, ..Self::default() }
    }

    /// A step that failed; `said`: bytes of the messages of those before it.
    pub fn failed(failure: Failure, said: usize) -> Self {
        let longest = if said < MUCH { LONGEST_MESSAGE } else { SHORT_MESSAGE };
        let message = failure.message.chars().take(longest).collect();
        Self { message: Some(message), errno: failure.errno, ..Self::default() }
    }

    pub fn is_failure(&self) -> bool {
        self.message.is_some()
    }
}

impl Steps {
    /// Its payload; refused where there are too many steps, or where it isn't what they write.
    pub fn with_data(self, data: Vec<u8>) -> Result<Self, Failure> {
        if self.steps.is_empty() || self.steps.len() > MAX_STEPS {
            return Err(Failure::new(format!(
                "steps: {} steps, and 1 to {MAX_STEPS} may be",
                self.steps.len()
            )));
        }
        let sizes = self.steps.iter().map(|step| if let Step::Write { size, .. } = step { *size } else { 0 });
        let wanted = sizes.fold(0_usize, usize::saturating_add);
        if wanted != data.len() {
            let message = format!("steps: {wanted} bytes are to be written, and {} came", data.len());
            return Err(Failure::new(message));
        }
        Ok(Self { data, ..self })
    }
}

fn directory_mode() -> u32 {
    0o755
}

fn whole() -> u64 {
    MAX_CONTENTS as u64
}
