//! Reads and writes: one at a time is with the file thread, the others wait here.

use nix::errno::Errno;

use super::{FileJob, Session};
use crate::files::{FileThread, Job, Outcome};
use crate::poller::{Interest, Part, Token};
use crate::protocol::{Event, Failure};

/// How many bytes may wait to be written before requests must wait: four of the greatest frames. A controller that
/// waits for each `done` never gets there.
const WRITE_LIMIT: usize = 4 * crate::protocol::MAX_FRAME;

impl Session {
    pub(super) fn queue_job(&mut self, job: Job) {
        if let Err(failure) = self.start_file_thread() {
            return self.refuse(job.id(), failure);
        }
        self.jobs.push_back(job);
        self.submit_job();
    }

    /// Do so many writes wait that no more requests may be taken in?
    pub(super) fn has_many_writes(&self) -> bool {
        let size = |job: &Job| if let Job::Write { write, .. } = job { write.data.len() } else { 0 };
        self.jobs.iter().map(size).sum::<usize>() + self.steps.waiting_bytes() > WRITE_LIMIT
    }

    /// Gives the file thread its next job, a read only if there is room for what it brings.
    pub(super) fn submit_job(&mut self) {
        let (Some(thread), None) = (&self.files, self.file_job) else { return };
        let has_room = self.outbox.has_room();
        let next = self.jobs.iter().position(|job| has_room || !job.is_read());
        if let Some(job) = next.and_then(|index| self.jobs.remove(index)) {
            self.file_job = Some(FileJob { id: job.id(), is_read: job.is_read(), cancelled: false });
            thread.submit(job);
        }
    }

    pub(super) fn on_files(&mut self) {
        let outcomes = self.files.as_ref().map(FileThread::outcomes).unwrap_or_default();
        for outcome in outcomes {
            let cancelled = self.file_job.take().is_some_and(|job| job.cancelled);
            self.take_outcome(outcome, cancelled);
        }
        self.submit_job();
    }

    fn take_outcome(&mut self, outcome: Outcome, cancelled: bool) {
        match outcome {
            Outcome::Chunk { id, reading, bytes } if bytes.is_empty() || cancelled => {
                let size = reading.read - bytes.len() as u64;
                self.outbox.push(id, &Event::done_size(size), &[]);
            }
            Outcome::Chunk { id, reading, bytes } => {
                self.outbox.push(id, &Event::Data, &bytes);
                self.jobs.push_back(Job::Read { id, reading });
            }
            Outcome::Written { id, size } => self.outbox.push(id, &Event::done_size(size), &[]),
            Outcome::Failed { id, failure } => self.refuse(id, failure),
        }
    }

    /// Ends a read; false where there is none of this number.
    pub(super) fn cancel_read(&mut self, id: u64) -> bool {
        if let Some(job) = self.file_job.as_mut().filter(|job| job.id == id && job.is_read) {
            job.cancelled = true;
            return true;
        }
        let index = self.jobs.iter().position(|job| job.is_read() && job.id() == id);
        match index.and_then(|index| self.jobs.remove(index)) {
            Some(Job::Read { reading, .. }) => {
                self.outbox.push(id, &Event::done_size(reading.read), &[]);
                true
            }
            _ => false,
        }
    }

    pub(super) fn has_job(&self, id: u64) -> bool {
        self.file_job.is_some_and(|job| job.id == id) || self.jobs.iter().any(|job| job.id() == id)
    }

    /// Ends all that wait.
    pub(super) fn cancel_jobs(&mut self) {
        for job in std::mem::take(&mut self.jobs) {
            self.refuse(job.id(), Failure::errno("the agent is shutting down", Errno::ECANCELED));
        }
    }

    fn start_file_thread(&mut self) -> Result<(), Failure> {
        if self.files.is_none() {
            let cant = |error: std::io::Error| Failure::io("can't start a thread for files", &error);
            let thread = FileThread::start().map_err(cant)?;
            self.poller
                .watch(thread.bell(), Token::session(Part::Files), Interest::Read)
                .map_err(|errno| cant(errno.into()))?;
            self.files = Some(thread);
        }
        Ok(())
    }
}
