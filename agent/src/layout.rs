//! `storlab-agent layout SPEC`: lays out the files that a load of fio's expects, as fio itself would (`extend_file()` in
//! its filesetup.c), without its start, which takes longer than the files of a short load.
//!
//! What the load reads is written, in blocks of random bytes that can't be compressed and none of which comes twice;
//! of what it only writes, the space is reserved. A file that is large enough is left as it is. One that can't be laid
//! out whole is removed: it has its size from the beginning, and would be taken for one that is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use serde::{Deserialize, Serialize};

use crate::storm::random::{derive, fill};

const CONTENT: u64 = 5; // of a file, and of none of a storm's
const LARGEST_BLOCK: usize = 1 << 30;

/// All files of a load, in the order in which fio lays them out.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// Where it is recorded what was done: this document, with `how` of each file.
    #[serde(skip_serializing)]
    record: PathBuf,
    seed: u64,
    files: Vec<Wanted>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    path: PathBuf,
    /// Bytes.
    size: i64,
    /// Of one write, a multiple of 8; null: nothing is written.
    block: Option<usize>,
    /// fallocate(2) before anything is written, if the file system can.
    reserve: bool,
    #[serde(skip_deserializing)]
    how: Option<How>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum How {
    Found,
    /// It was made, and has what space the file system reserves.
    Made,
    Written,
}

/// Lays them out, one after the other, and gives the exit status: 1 if one of them can't be.
pub fn run(spec: &str) -> ExitCode {
    let mut spec: Spec = match serde_json::from_str(spec) {
        Ok(spec) => spec,
        Err(error) => {
            eprintln!("storlab-agent: {error}");
            return ExitCode::from(2);
        }
    };
    match lay_out(&mut spec) {
        Ok(()) => ExitCode::SUCCESS,
        Err((path, error)) => {
            eprintln!("storlab-agent: can't lay out {}: {error}", path.display());
            ExitCode::from(1)
        }
    }
}

fn lay_out(spec: &mut Spec) -> Result<(), (PathBuf, io::Error)> {
    for (number, file) in spec.files.iter_mut().enumerate() {
        let content = derive(spec.seed, CONTENT, number as u64);
        file.how = Some(file.lay_out(content).map_err(|error| (file.path.clone(), error))?);
    }
    let record = serde_json::to_vec_pretty(spec).map_err(io::Error::from);
    record.and_then(|record| fs::write(&spec.record, record)).map_err(|error| (spec.record.clone(), error))
}

impl Wanted {
    fn lay_out(&self, content: u64) -> io::Result<How> {
        match fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => return Err(io::Error::other("it is no regular file")),
            Ok(found) if found.len() >= self.size.unsigned_abs() => return Ok(How::Found),
            Ok(_) => fs::remove_file(&self.path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&self.path)?;
        let made = self.fill(&file, content);
        if made.is_err() {
            remove(&self.path);
        }
        made
    }

    fn fill(&self, mut file: &File, content: u64) -> io::Result<How> {
        if self.reserve {
            // fio, too, goes on where that can't be done.
            let _ = fallocate(file, FallocateFlags::empty(), 0, self.size);
        }
        let Some(block) = self.block else { return Ok(How::Made) };
        if block == 0 || block % 8 != 0 || block > LARGEST_BLOCK {
            return Err(io::Error::other("a block is a multiple of 8 bytes, at most 1 GiB"));
        }
        let size = self.size.unsigned_abs();
        file.set_len(size)?;
        let mut buffer = vec![0; block];
        for offset in (0..size).step_by(block) {
            let length = usize::try_from(size - offset).map_or(block, |rest| rest.min(block));
            fill(content, offset, &mut buffer[..length]);
            file.write_all(&buffer[..length])?;
        }
        file.sync_all()?;
        posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        Ok(How::Written)
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        eprintln!("storlab-agent: can't remove {}: {error}", path.display());
    }
}
