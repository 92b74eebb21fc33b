//! `storlab-agent pcap [FILE]`: what TCP did in a capture, as one JSON document on stdout; without FILE, from stdin.
//!
//! It reads what strangers sent, so it takes no memory that grows with their packets, opens nothing once it has
//! begun, and ends with a sentence and status 1 where a file is not what it says. `docs/reference/pcap-output.md`
//! is the contract.
//!
//! | module | is |
//! | --- | --- |
//! | `input` | bytes, as many at a time as a record has; records that stand for segments where there are no packets |
//! | `container` | pcap and pcapng: packets |
//! | `frames` | links, IP and TCP with its options: a packet as a segment |
//! | `streams`, `direction` | connections, and what each end of one sent |
//! | `kept` | what is kept of a direction, bounded |
//! | `output`, `fault` | the document, and why there is none |

mod container;
mod direction;
mod fault;
mod frames;
mod input;
mod kept;
mod output;
mod streams;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::process::ExitCode;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use fault::Fault;
use frames::Frames;
use input::Input;
use output::Document;
use streams::Streams;

/// Bytes of address space. Its own bounds keep it far below, whatever it reads; this holds should they be wrong.
const MEMORY: u64 = 2 << 30;
/// Descriptors: the standard streams, so that no file and no socket can be opened.
const DESCRIPTORS: u64 = 3;

/// Reads one capture, from stdin unless there is a `file`, and gives the exit status: 1 where it can't be read.
pub fn run(file: Option<&OsStr>) -> ExitCode {
    let read = match file {
        None => restrict().and_then(|()| read(io::stdin().lock())),
        Some(path) => File::open(path).map_err(Fault::from).and_then(|file| {
            restrict()?;
            read(file)
        }),
    };
    match read.and_then(|document| print(&document)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("storlab-agent: {fault}");
            ExitCode::from(1)
        }
    }
}

fn restrict() -> Result<(), Fault> {
    for (resource, most) in
        [(Resource::RLIMIT_AS, MEMORY), (Resource::RLIMIT_NOFILE, DESCRIPTORS), (Resource::RLIMIT_CORE, 0)]
    {
        let (_, hard) = getrlimit(resource).map_err(io::Error::from)?;
        let most = most.min(hard);
        setrlimit(resource, most, most).map_err(io::Error::from)?;
    }
    Ok(())
}

/// What TCP did in all that `reader` gives.
fn read(reader: impl Read) -> Result<Document, Fault> {
    let (mut input, mut document, mut streams) =
        (Input::new(reader), Document::default(), Streams::default());
    if input.peek(input::MAGIC.len())?.is_some_and(|head| head == input::MAGIC) {
        document.cut_off = input::read(&mut input, |segment| streams.add(&segment))?;
    } else {
        let mut frames = Frames::default();
        document.notes = container::read(&mut input, |packet| {
            if let Some(segment) = frames.segment(packet)? {
                streams.add(&segment);
            }
            Ok(())
        })?;
        document.cut_off = document.notes.cut_off;
        document.frames = frames;
    }
    (document.connections, document.left_out) = streams.finish();
    Ok(document)
}

fn print(document: &Document) -> Result<(), Fault> {
    let mut output = BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut output, document).map_err(io::Error::from)?;
    output.write_all(b"\n")?;
    Ok(output.flush()?)
}
