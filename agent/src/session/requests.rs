//! What each request begins.

use nix::errno::Errno;

use super::serve::Lease;
use super::serve::hello;
use super::{End, FAREWELL_NS, Session};
use crate::clock;
use crate::facts::FactsRequest;
use crate::files::{Job, Reading};
use crate::protocol::{self, Event, Failure, Operation, PROTOCOL, Request, RequestError};
use crate::run::Owner;
use crate::sample::Sampler;

impl Session {
    /// Serves all requests that have come whole.
    pub(super) fn serve_requests(&mut self) -> Option<End> {
        loop {
            let request = match self.decoder.next_frame() {
                Ok(Some(frame)) => protocol::parse(&frame),
                Ok(None) => return None,
                Err(error) => return Some(End::Broken(error.to_string())),
            };
            match request {
                Ok(request) => {
                    if let Some(end) = self.serve_request(request) {
                        return Some(end);
                    }
                }
                Err(RequestError::Refused { id, failure }) => self.refuse(id, failure),
                Err(error @ RequestError::Fatal(_)) => return Some(End::Broken(error.to_string())),
            }
        }
    }

    pub(super) fn refuse(&mut self, id: u64, failure: Failure) {
        self.outbox.push(id, &Event::Error(failure), &[]);
    }

    fn serve_request(&mut self, Request { id, operation }: Request) -> Option<End> {
        match operation {
            Operation::Hello { protocol, .. } if protocol != PROTOCOL => {
                let message = format!(
                    "this agent speaks protocol {PROTOCOL}, not {protocol}: install the matching one"
                );
                self.outbox.push(id, &Event::Refused { message: message.clone() }, &[]);
                return Some(End::Refused(message));
            }
            Operation::Hello { lease_ns, .. } => {
                self.greeted = true;
                self.lease = lease_ns.map(Lease::new);
                self.hear();
                self.outbox.push(id, &hello(lease_ns), &[]);
            }
            _ if !self.greeted => self.refuse(id, Failure::new("the first request must be hello")),
            _ if self.is_in_use(id) => {
                self.refuse(id, Failure::errno(format!("request {id} is still in progress"), Errno::EEXIST));
            }
            _ if self.shutdown.is_some() => self.refuse(id, Failure::new("the agent is shutting down")),
            Operation::Clock => {
                let (monotonic_ns, realtime_ns) = (clock::monotonic_ns(), clock::realtime_ns());
                self.outbox.push(id, &Event::Clock { monotonic_ns, realtime_ns }, &[]);
            }
            Operation::Facts { tools } => {
                self.facts.insert(id, FactsRequest::new(tools));
                self.advance_facts(id);
            }
            Operation::Run(run) => self.begin_run(&run, Owner::Request(id)),
            Operation::Stdin(stdin) => self.feed(id, stdin),
            Operation::Stop(stop) => self.stop(id, &stop),
            Operation::Turns(turns) => self.take_turns(id, &turns),
            Operation::Read(read) => self.queue_job(Job::Read { id, reading: Reading::new(read) }),
            Operation::Write(write) => self.queue_job(Job::Write { id, write }),
            Operation::Steps(steps) => self.queue_steps(id, steps),
            Operation::Sample(sample) => match Sampler::new(&sample, clock::monotonic_ns()) {
                Ok(sampler) => {
                    self.samplers.insert(id, sampler);
                    self.take_samples();
                }
                Err(failure) => self.refuse(id, failure),
            },
            Operation::Shutdown => self.shut_down(id),
        }
        None
    }

    /// Is a request of this number in progress?
    fn is_in_use(&self, id: u64) -> bool {
        self.runs.values().any(|run| *run.owner() == Owner::Request(id))
            || self.samplers.contains_key(&id)
            || self.facts.contains_key(&id)
            || self.has_job(id)
            || self.steps.has(id)
    }

    fn stop(&mut self, id: u64, stop: &protocol::Stop) {
        let now = clock::monotonic_ns();
        if let Some(run) = self.runs.values_mut().find(|run| *run.owner() == Owner::Request(stop.run)) {
            run.stop(stop.signal, stop.grace_ns, now);
            self.outbox.push(id, &Event::done(), &[]);
        } else if let Some(sampler) = self.samplers.remove(&stop.run) {
            self.outbox.push(id, &Event::done(), &[]);
            self.outbox.push(stop.run, &Event::done_ticks(sampler.ticks()), &[]);
        } else if self.cancel_read(stop.run) || self.stop_steps(stop) {
            self.outbox.push(id, &Event::done(), &[]);
        } else {
            self.refuse(id, Failure::errno(format!("{} is no run in progress", stop.run), Errno::ESRCH));
        }
    }

    /// A sample that is due is taken; one that is complete or can't be taken ends.
    pub(super) fn take_samples(&mut self) {
        self.samplers.retain(|&id, sampler| match sampler.tick(id, &mut self.outbox) {
            Ok(()) if sampler.is_complete() => {
                self.outbox.push(id, &Event::done_ticks(sampler.ticks()), &[]);
                false
            }
            Ok(()) => true,
            Err(failure) => {
                self.outbox.push(id, &Event::Error(failure), &[]);
                false
            }
        });
    }

    /// Ends all that is in progress; `done` follows when the last run has ended.
    fn shut_down(&mut self, id: u64) {
        let now = clock::monotonic_ns();
        for run in self.runs.values_mut() {
            run.kill(now);
        }
        for (id, sampler) in std::mem::take(&mut self.samplers) {
            self.outbox.push(id, &Event::done_ticks(sampler.ticks()), &[]);
        }
        for id in std::mem::take(&mut self.facts).into_keys() {
            self.refuse(id, Failure::errno("the agent is shutting down", Errno::ECANCELED));
        }
        self.cancel_jobs();
        self.cancel_steps();
        self.shutdown = Some((id, now + FAREWELL_NS));
    }
}
