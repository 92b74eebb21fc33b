//! The command line: `serve`, `init`, `trace`, `tcp`, `locks`, `folios`, `counters`, `profile`, `files`, `layout`, `relay`,
//! `pcap`, `confine`, `--version`, and the hidden `launch` and `guard`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::protocol::{PROTOCOL, is_file_name};

/// What a wrong command line is answered with.
pub const USAGE: &str = "usage: storlab-agent serve [--cgroup NAME] [--port PATH]\n       storlab-agent init\n       storlab-agent trace [OPTION]...\n       storlab-agent tcp [OPTION]...\n       storlab-agent locks [OPTION]...\n       storlab-agent folios [OPTION]...\n       storlab-agent counters [OPTION]...\n       storlab-agent profile [OPTION]...\n       storlab-agent files SPEC\n       storlab-agent layout SPEC\n       storlab-agent relay OPTION...\n       storlab-agent pcap [FILE]\n       storlab-agent confine CONFINEMENT PROGRAM [ARGUMENT]...\n       storlab-agent --version";

/// What the program was asked to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Obey a controller.
    Serve(ServeOptions),
    /// Tell what block I/O there is (see [`crate::trace`]), which understands its own arguments.
    Trace(Vec<OsString>),
    /// Tell what TCP connections do (see [`crate::tcp`]), likewise.
    Tcp(Vec<OsString>),
    /// Tell what the node's counters say (see [`crate::perf`]), likewise.
    Counters(Vec<OsString>),
    /// Tell where the CPUs are (see [`crate::profile`]), likewise.
    Profile(Vec<OsString>),
    /// Tell who waits for locks of the kernel (see [`crate::locks`]), likewise.
    Locks(Vec<OsString>),
    /// Tell how large the folios are that files are cached in (see [`crate::folios`]), likewise.
    Folios(Vec<OsString>),
    /// Create, read, stat and delete many files (see [`crate::storm`]).
    Files(OsString),
    /// Lay out the files of a load of fio's (see [`crate::layout`]): what is asked for, as JSON.
    Layout(String),
    /// Stand between a server and its clients (see [`crate::relay`]), which understands its own arguments.
    Relay(Vec<OsString>),
    /// Tell what TCP did in a capture (see [`crate::pcap`]): in this file, or else on stdin.
    Pcap(Option<OsString>),
    /// Become a program that is confined (see [`crate::confine`]).
    Confine {
        /// A `Confinement` as JSON.
        confinement: String,
        /// The program and its arguments.
        argv: Vec<OsString>,
    },
    /// Be process 1 of a guest (see [`crate::init`]).
    Init,
    /// Prepare, wait and become a program: what the agent re-executes itself for (see [`crate::launch`]).
    Launch {
        /// A `LaunchSpec` as JSON.
        spec: String,
        /// The program and its arguments.
        argv: Vec<OsString>,
    },
    /// Outlive the agent, to end what it leaves (see [`crate::processes::Guard`]).
    Guard {
        /// The agent's cgroup.
        cgroup: OsString,
        /// The agent's process.
        agent: u32,
    },
    /// Print the version.
    Version,
}

/// Options of `serve`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServeOptions {
    /// Name of the cgroup under which each run gets its own.
    pub cgroup: Option<String>,
    /// Character device or socket to use in place of the standard streams.
    pub port: Option<PathBuf>,
}

/// A command line that can't be obeyed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UsageError {
    /// No subcommand, or one that doesn't exist.
    #[error("a command is needed")]
    NoCommand,
    /// An argument that the command doesn't know.
    #[error("unknown argument {0:?}")]
    Unknown(OsString),
    /// An option without its value.
    #[error("{0} needs a value")]
    NoValue(&'static str),
    /// A cgroup's name becomes one directory, whose name must not lead elsewhere.
    #[error("{0:?} can't name a cgroup: letters, digits, '.', '_' and '-' only, and no leading '.'")]
    CgroupName(OsString),
    /// `files` without its only argument, or with more.
    #[error("files takes the name of one file, its specification")]
    Files,
    /// `layout` without its only argument, or with more.
    #[error("layout takes a specification as JSON")]
    Layout,
    /// `confine` without what confines, or without a program.
    #[error("confine takes a confinement as JSON, and a program with its arguments")]
    Confine,
    /// `launch` or `guard` without its arguments.
    #[error("{0} is for the agent itself")]
    Own(&'static str),
}

/// The line that `--version` prints.
pub fn version() -> String {
    format!("storlab-agent {} (protocol {PROTOCOL})", env!("CARGO_PKG_VERSION"))
}

/// Understands the arguments that follow the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, UsageError> {
    let mut arguments = arguments.into_iter();
    let command = arguments.next().ok_or(UsageError::NoCommand)?;
    match command.to_str() {
        Some("serve") => parse_serve(arguments).map(Command::Serve),
        Some("launch") => parse_launch(arguments),
        Some("confine") => parse_confine(arguments),
        Some("guard") => parse_guard(arguments),
        Some("trace") => Ok(Command::Trace(arguments.collect())),
        Some("relay") => Ok(Command::Relay(arguments.collect())),
        Some("pcap") => match (arguments.next(), arguments.next()) {
            (file, None) => Ok(Command::Pcap(file)),
            (_, Some(argument)) => Err(UsageError::Unknown(argument)),
        },
        Some("tcp") => Ok(Command::Tcp(arguments.collect())),
        Some("counters") => Ok(Command::Counters(arguments.collect())),
        Some("profile") => Ok(Command::Profile(arguments.collect())),
        Some("locks") => Ok(Command::Locks(arguments.collect())),
        Some("folios") => Ok(Command::Folios(arguments.collect())),
        Some("files") => match (arguments.next(), arguments.next()) {
            (Some(spec), None) => Ok(Command::Files(spec)),
            _ => Err(UsageError::Files),
        },
        Some("layout") => match (arguments.next().map(OsString::into_string), arguments.next()) {
            (Some(Ok(spec)), None) => Ok(Command::Layout(spec)),
            _ => Err(UsageError::Layout),
        },
        Some("init") => match arguments.next() {
            Some(argument) => Err(UsageError::Unknown(argument)),
            None => Ok(Command::Init),
        },
        Some("--version" | "-V") => Ok(Command::Version),
        _ => Err(UsageError::Unknown(command)),
    }
}

fn parse_serve(mut arguments: impl Iterator<Item = OsString>) -> Result<ServeOptions, UsageError> {
    let mut options = ServeOptions::default();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--cgroup") => {
                let name = arguments.next().ok_or(UsageError::NoValue("--cgroup"))?;
                options.cgroup = Some(cgroup_name(name)?);
            }
            Some("--port") => {
                let path = arguments.next().ok_or(UsageError::NoValue("--port"))?;
                options.port = Some(path.into());
            }
            _ => return Err(UsageError::Unknown(argument)),
        }
    }
    Ok(options)
}

fn parse_launch(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, UsageError> {
    let spec = arguments.next().and_then(|spec| spec.into_string().ok()).ok_or(UsageError::Own("launch"))?;
    let argv: Vec<_> = arguments.collect();
    if argv.is_empty() { Err(UsageError::Own("launch")) } else { Ok(Command::Launch { spec, argv }) }
}

fn parse_confine(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, UsageError> {
    let confinement =
        arguments.next().and_then(|words| words.into_string().ok()).ok_or(UsageError::Confine)?;
    let argv: Vec<_> = arguments.collect();
    if argv.is_empty() { Err(UsageError::Confine) } else { Ok(Command::Confine { confinement, argv }) }
}

fn parse_guard(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, UsageError> {
    let (cgroup, agent) = (arguments.next(), arguments.next());
    let agent = agent.and_then(|agent| agent.to_str()?.parse().ok());
    cgroup.zip(agent).map(|(cgroup, agent)| Command::Guard { cgroup, agent }).ok_or(UsageError::Own("guard"))
}

fn cgroup_name(name: OsString) -> Result<String, UsageError> {
    match name.into_string() {
        Ok(name) if is_file_name(&name) => Ok(name),
        Ok(name) => Err(UsageError::CgroupName(name.into())),
        Err(name) => Err(UsageError::CgroupName(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Command, UsageError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn serve_takes_a_cgroup_and_a_port() {
        let options = ServeOptions { cgroup: Some("lab-1".into()), port: Some("/dev/vport0p1".into()) };
        assert_eq!(parse_words("serve --cgroup lab-1 --port /dev/vport0p1"), Ok(Command::Serve(options)));
    }

    #[test]
    fn a_cgroups_name_can_not_lead_to_another_directory() {
        for name in ["../x", "a/b", ".", "..", "a b"] {
            let arguments = ["serve", "--cgroup", name].map(OsString::from);
            assert_eq!(parse(arguments), Err(UsageError::CgroupName(name.into())));
        }
    }

    #[test]
    fn a_capture_is_one_file_or_comes_on_stdin() {
        assert_eq!(parse_words("pcap"), Ok(Command::Pcap(None)));
        assert_eq!(parse_words("pcap x.pcap"), Ok(Command::Pcap(Some("x.pcap".into()))));
        assert_eq!(parse_words("pcap x y"), Err(UsageError::Unknown("y".into())));
    }

    #[test]
    fn what_is_confined_is_a_program() {
        let argv = ["ls", "-l"].map(OsString::from).to_vec();
        assert_eq!(parse_words("confine {} ls -l"), Ok(Command::Confine { confinement: "{}".into(), argv }));
        assert_eq!(parse_words("confine {}"), Err(UsageError::Confine));
    }

    #[test]
    fn an_option_without_its_value_is_named() {
        assert_eq!(parse_words("serve --port"), Err(UsageError::NoValue("--port")));
        assert_eq!(parse_words("serve --verbose"), Err(UsageError::Unknown("--verbose".into())));
        assert_eq!(parse_words(""), Err(UsageError::NoCommand));
    }
}
