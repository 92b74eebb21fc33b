//! The Storlab agent: it runs on a node and obeys a controller over one stream of bytes.
//!
//! The contract with the controller is `docs/reference/agent-protocol.md`. How the parts go together:
//!
//! | module | is |
//! | --- | --- |
//! | [`protocol`] | frames, requests, events: bytes in, values out, no I/O |
//! | [`stream`], [`outbox`], [`poller`] | the byte stream, what waits to go out on it, what the loop waits for |
//! | [`session`] | the event loop: one controller, one thread |
//! | [`confine`] | what a load may touch: a mount namespace and a `/dev` of its own, and what it gives up |
//! | [`launch`] | how a program is started: in its own process group and cgroup, at an agreed instant |
//! | [`processes`] | which processes belong to a run, and how all of them are killed |
//! | [`run`], [`sample`], [`files`], [`steps`], [`facts`] | one module a kind of request |
//! | [`symbols`] | the kernel's functions by address |
//! | [`watching`] | what commands that watch have in common: options, lines, the end |
//! | [`init`] | process 1 of a guest: the way from the kernel to a served controller |
//! | [`sys`] | the few system calls that need `unsafe` |
//!
//! [`trace`] is a program of its own, which the session runs like any other: what it attaches to the kernel goes away
//! with its process, and it can be used without a controller. So are [`tcp`], [`locks`], [`folios`], [`perf`], [`profile`], [`storm`], the
//! workload of many small files, [`layout`], which lays out files for fio, [`relay`], which stands between a server and its clients, and [`pcap`], which reads captures.

#![deny(unsafe_code)] // `sys` is the one exception

pub mod cli;
pub mod clock;
pub mod confine;
pub mod facts;
pub mod files;
pub mod folios;
pub mod init;
pub mod launch;
pub mod layout;
pub mod locks;
pub mod outbox;
pub mod pcap;
pub mod perf;
pub mod poller;
pub mod processes;
pub mod profile;
pub mod protocol;
pub mod relay;
pub mod run;
pub mod sample;
pub mod session;
pub mod steps;
pub mod storm;
pub mod stream;
pub mod symbols;
pub mod sys;
pub mod tcp;
pub mod trace;
pub mod watching;
