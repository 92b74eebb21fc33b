//! What the shim reports.

use std::io::{self, Read};

use nix::errno::Errno;

use super::{Owner, Run, Start};
use crate::launch::{Report, Step};
use crate::outbox::Outbox;
use crate::perf::Counters;
use crate::protocol::{Event, Failure, Output};
use crate::sys::Usage;

/// Longer than all reports of one launch together.
const REPORT_LIMIT: usize = 4096;

impl Run {
    /// The shim has reported something, or has become the program.
    pub fn on_report(&mut self, outbox: &mut Outbox) {
        let mut bytes = [0; 512];
        while let Some(report) = &mut self.report {
            match report.read(&mut bytes) {
                Ok(count) if count > 0 && self.report_text.len() < REPORT_LIMIT => {
                    self.report_text.extend_from_slice(&bytes[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => self.report = None,
            }
        }
        while let Some(end) = self.report_text.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.report_text.drain(..=end).collect();
            if let Ok(report) = serde_json::from_slice(&line) {
                self.take_report(report, outbox);
            }
        }
    }

    fn take_report(&mut self, report: Report, outbox: &mut Outbox) {
        match report {
            Report::Ready { in_cgroup, confined, number } => {
                self.family.becomes(number);
                if !in_cgroup {
                    self.family.drop_cgroup();
                }
                if let Some(go) = self.go.take() {
                    self.counters = Some(Counters::from_exec(self.family.program().as_raw()));
                    drop(go);
                }
                self.announce(confined, outbox);
            }
            Report::Executing { start_ns, late_ns, user_ns, system_ns } => {
                let shim_usage = Usage { user_ns, system_ns, max_rss_bytes: 0 };
                self.start = Some(Start { at_ns: start_ns, late_ns, shim_usage });
                if self.timeout_at.is_some() {
                    self.timeout_at = self.timeout_ns.map(|timeout| start_ns.saturating_add(timeout));
                }
            }
            Report::Unconfined { why } => {
                let message = format!("can't confine {:?}: {why}", self.program);
                self.failure = Some(Failure::errno(message, Errno::EPERM));
            }
            Report::Failed { step, errno } => {
                self.start = None;
                self.failure = Some(Failure::errno(self.describe(step), Errno::from_raw(errno)));
            }
        }
    }

    fn announce(&mut self, confined: Option<bool>, outbox: &mut Outbox) {
        if let (Owner::Request(id), false) = (&self.owner, self.announced) {
            let cgroup = self.family.cgroup().map(|cgroup| cgroup.path().to_string_lossy().into_owned());
            let pid = self.family.program().as_raw();
            outbox.push(*id, &Event::Started { pid, cgroup, confined }, &[]);
        }
        self.announced = true;
    }

    fn describe(&self, step: Step) -> String {
        let file = |output: &Output| match output {
            Output::File(path) => path.clone(),
            _ => String::new(),
        };
        match step {
            Step::Stdout => format!("can't open {:?} for the standard output", file(&self.places.stdout)),
            Step::Stderr => format!("can't open {:?} for the standard error", file(&self.places.stderr)),
            Step::Directory => {
                format!("can't change to the directory {:?}", self.places.cwd.as_deref().unwrap_or_default())
            }
            Step::Execute => format!("can't execute {:?}", self.program),
        }
    }
}
