//! Process 1 of a guest: from the kernel's initramfs, in which the agent is the only program, to an agent that
//! serves the host, and to the end of the machine with it.
//!
//! The contract with the launcher is the chapter "Guests" of `docs/reference/agent-protocol.md`.

mod cmdline;
mod console;
mod error;
mod mounts;
mod port;
mod reap;
mod root;
mod switch;
mod wait;

pub use cmdline::{CmdlineError, Parameters};
pub use error::InitError;
pub use port::Preamble;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use console::say;

/// Has the kernel started this program as a guest's init? It may have added arguments: words of its command line
/// that it didn't know.
pub fn is_wanted(program: Option<&OsStr>) -> bool {
    std::process::id() == 1 && program == Some("/init".as_ref())
}

/// Is process 1, to the end. Whatever happens, the machine is powered off; it returns only where that fails, or
/// where this is no guest.
pub fn be_init() -> ExitCode {
    if std::process::id() != 1 || !switch::in_initramfs() {
        eprintln!("storlab-agent: {}", InitError::NotInGuest);
        return ExitCode::from(2);
    }
    match live() {
        Ok(end) => say(format_args!("{end}; powering off")),
        Err(error) => say(format_args!("{error}; powering off")),
    }
    match reap::power_off() {
        Ok(never) => match never {},
        Err(_) => ExitCode::FAILURE,
    }
}

/// The life of a guest; its end as a sentence.
fn live() -> Result<String, InitError> {
    mounts::early()?;
    let cmdline = fs::read_to_string("/proc/cmdline").map_err(InitError::file("read", "/proc/cmdline"))?;
    let parameters = Parameters::parse(&cmdline)?;
    if parameters.try_only {
        say("alive");
        return Ok("this was only a try".into());
    }
    mounts::load(Path::new("/modules"));
    match &parameters.root {
        Some(serial) => root::mount_disk(&mounts::with_serial(serial)?)?,
        None => root::assemble(&mounts::layers(parameters.layers)?)?,
    }
    switch::switch_to(root::ROOT)?;
    mounts::late()?;
    name_machine(parameters.name.as_deref());
    let port = renewed_by_host(port::Port::open(&parameters.port)?)?;
    let agent = reap::start_agent(port.into_file())?;
    Ok(reap::reap_until_end(agent))
}

/// Names the guest, and lets it talk to itself. It can do without either.
fn name_machine(name: Option<&str>) {
    if let Some(name) = name
        && let Err(errno) = nix::unistd::sethostname(name)
    {
        say(format_args!("warning: the hostname can't be set to {name:?}: {errno}"));
    }
    // IFF_UP: the kernel then gives it its address itself.
    if let Err(error) = fs::write("/sys/class/net/lo/flags", "0x1") {
        say(format_args!("warning: the loopback interface doesn't come up: {error}"));
    }
}

/// Waits for the host, and takes its preamble. A guest is saved while it waits here: it has drawn no random number
/// that anyone has seen, and runs nothing.
fn renewed_by_host(mut port: port::Port) -> Result<port::Port, InitError> {
    say("ready");
    port.wait_for_host()?;
    let mut bytes = [0; port::LENGTH];
    port.read_exactly(&mut bytes)?;
    Preamble::parse(&bytes).ok_or(InitError::Preamble)?.apply()?;
    Ok(port)
}
