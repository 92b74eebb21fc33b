//! A program's standard input: what waits until the pipe takes it.

use std::collections::VecDeque;
use std::io::{self, PipeWriter, Write};

use nix::errno::Errno;

use crate::outbox::Outbox;
use crate::poller::{Interest, Poller, Token};
use crate::protocol::{Event, Failure};

/// How much may wait, in bytes: two of the greatest frames.
const LIMIT: usize = 2 * crate::protocol::MAX_FRAME;

/// One `stdin` request.
#[derive(Debug)]
struct Portion {
    request: u64,
    data: Vec<u8>,
    written: usize,
    eof: bool,
}

/// The writing end of a program's standard input.
#[derive(Debug)]
pub struct StdinPipe {
    pipe: Option<PipeWriter>,
    /// It was a stream once; it may be closed now.
    is_stream: bool,
    token: Token,
    waiting: VecDeque<Portion>,
    watched: bool,
}

impl StdinPipe {
    /// `None` is `/dev/null`.
    pub fn new(pipe: Option<PipeWriter>, token: Token) -> Self {
        Self { is_stream: pipe.is_some(), pipe, token, waiting: VecDeque::new(), watched: false }
    }

    /// Takes one request, which is answered now or later.
    pub fn feed(&mut self, request: u64, data: Vec<u8>, eof: bool, poller: &Poller, outbox: &mut Outbox) {
        let waiting: usize = self.waiting.iter().map(|portion| portion.data.len() - portion.written).sum();
        let refusal = if !self.is_stream {
            Some(Failure::errno("this run's standard input is no stream", Errno::EBADF))
        } else if self.waiting.back().is_some_and(|last| last.eof) {
            Some(Failure::errno("this run's standard input was closed by an eof", Errno::EPIPE))
        } else if waiting + data.len() > LIMIT {
            let message = format!("{waiting} bytes wait already for this run's standard input");
            Some(Failure::errno(message, Errno::ENOBUFS))
        } else {
            None
        };
        match refusal {
            Some(failure) => outbox.push(request, &Event::Error(failure), &[]),
            None => {
                self.waiting.push_back(Portion { request, data, written: 0, eof });
                self.flush(poller, outbox);
            }
        }
    }

    pub fn flush(&mut self, poller: &Poller, outbox: &mut Outbox) {
        while let Some(portion) = self.waiting.front_mut() {
            let Some(pipe) = &mut self.pipe else { return self.close(outbox) };
            match write_some(pipe, &portion.data[portion.written..]) {
                Ok(count) => portion.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.watch(poller, outbox),
                Err(_) => return self.close(outbox),
            }
            if portion.written == portion.data.len() {
                outbox.push(portion.request, &Event::done(), &[]);
                if portion.eof {
                    self.pipe = None;
                    self.watched = false;
                }
                self.waiting.pop_front();
            }
        }
        self.unwatch(poller);
    }

    /// Nobody reads it any more: what waits is refused.
    pub fn close(&mut self, outbox: &mut Outbox) {
        self.pipe = None;
        self.watched = false;
        for portion in self.waiting.drain(..) {
            let failure = Failure::errno("this run's standard input is closed", Errno::EPIPE);
            outbox.push(portion.request, &Event::Error(failure), &[]);
        }
    }

    /// Only while something waits: a pipe that has room would be reported without end.
    fn watch(&mut self, poller: &Poller, outbox: &mut Outbox) {
        if let (Some(pipe), false) = (&self.pipe, self.watched) {
            match poller.watch(pipe, self.token, Interest::Write) {
                Ok(()) => self.watched = true,
                Err(_) => self.close(outbox),
            }
        }
    }

    fn unwatch(&mut self, poller: &Poller) {
        if let (Some(pipe), true) = (&self.pipe, self.watched) {
            poller.unwatch(pipe);
            self.watched = false;
        }
    }
}

fn write_some(pipe: &mut PipeWriter, data: &[u8]) -> io::Result<usize> {
    if data.is_empty() {
        return Ok(0); // nothing but an eof
    }
    loop {
        match pipe.write(data) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
