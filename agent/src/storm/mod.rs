//! `storlab-agent files SPEC`: a storm of many small files, told as one JSON document on stdout when it is over.
//!
//! | module | is |
//! | --- | --- |
//! | `spec`, `sizes` | what is asked for |
//! | `tree`, `random` | names, contents and orders, all computed from a file's number: a million files need no memory |
//! | `phases`, `worker` | who does what when |
//! | `latency` | what is counted meanwhile |
//! | `report` | the document |

mod latency;
mod phases;
pub(crate) mod random;
mod report;
mod spec;
mod tree;
mod worker;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;

use report::Report;
use spec::Spec;

const LONGEST_SPEC: usize = 16 << 20; // bytes

/// Does what the file `spec` says, and gives the exit status: 1 where an operation failed, which the document tells
/// of, 2 where the file asks for what can't be.
pub fn run(spec: &OsStr) -> ExitCode {
    let spec = match read(spec) {
        Ok(spec) => spec,
        Err(fault) => {
            eprintln!("storlab-agent: {}: {fault}", spec.display());
            return ExitCode::from(2);
        }
    };
    let mut report = Report::new();
    report.error = phases::storm(&spec, &mut report).err();
    if let Some(error) = &report.error {
        eprintln!("storlab-agent: {error}");
    }
    match serde_json::to_writer(std::io::stdout().lock(), &report) {
        Ok(()) if report.error.is_none() => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    }
}

fn read(path: &OsStr) -> Result<Spec, String> {
    let mut text = vec![];
    // What has no end, such as /dev/zero, is not read to it.
    File::open(path)
        .and_then(|file| file.take(LONGEST_SPEC as u64 + 1).read_to_end(&mut text))
        .map_err(|error| error.to_string())?;
    if text.len() > LONGEST_SPEC {
        return Err(format!("a specification has {} MiB at most", LONGEST_SPEC >> 20));
    }
    let spec: Spec = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    spec.fault().map_or(Ok(spec), |fault| Err(fault.to_owned()))
}
