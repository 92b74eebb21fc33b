//! The command line: which command was asked for, and the options of `serve`. Commands that watch read their own.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::protocol::{PROTOCOL, is_file_name};
use crate::watching::{OptionError, read_options};
use crate::{
    confine, folios, init, launch, layout, locks, pcap, perf, processes, profile, relay, session, storm, tcp,
    trace,
};

/// What a wrong command line is answered with.
pub const USAGE: &str = "usage: storlab-agent serve [--cgroup NAME] [--port PATH]\n       storlab-agent init\n       storlab-agent trace [OPTION]...\n       storlab-agent tcp [OPTION]...\n       storlab-agent locks [OPTION]...\n       storlab-agent folios [OPTION]...\n       storlab-agent counters [OPTION]...\n       storlab-agent profile [OPTION]...\n       storlab-agent files SPEC\n       storlab-agent layout SPEC\n       storlab-agent relay OPTION...\n       storlab-agent pcap [FILE]\n       storlab-agent confine CONFINEMENT PROGRAM [ARGUMENT]...\n       storlab-agent --version";

/// Options of `serve`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServeOptions {
    /// Name of the cgroup under which each run gets its own.
    pub cgroup: Option<String>,
    /// Character device or socket to use in place of the standard streams.
    pub port: Option<PathBuf>,
}

/// Does what the arguments that follow the program's name ask for.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    dispatch(&arguments.into_iter().collect::<Vec<_>>()).unwrap_or_else(|error| {
        eprintln!("storlab-agent: {error}\n{USAGE}");
        ExitCode::from(2)
    })
}

fn dispatch(arguments: &[OsString]) -> Result<ExitCode, OptionError> {
    let wrong = |what: &str| Err(OptionError(what.to_owned()));
    let (command, rest) = arguments.split_first().ok_or_else(|| OptionError("a command is needed".into()))?;
    let own = || rest.to_vec();
    Ok(match (command.to_str().unwrap_or_default(), rest) {
        ("serve", _) => return serve(own()),
        ("trace", _) => trace::run(own()),
        ("tcp", _) => tcp::run(own()),
        ("locks", _) => locks::run(own()),
        ("folios", _) => folios::run(own()),
        ("counters", _) => perf::run(own()),
        ("profile", _) => profile::run(own()),
        ("relay", _) => relay::run(own()),
        ("files", [spec]) => storm::run(spec),
        ("files", _) => return wrong("files takes the name of one file, its specification"),
        ("layout", [spec]) => layout::run(text(spec)?),
        ("layout", _) => return wrong("layout takes a specification as JSON"),
        ("pcap", [] | [_]) => pcap::run(rest.first().map(OsString::as_os_str)),
        ("confine", [confinement, argv @ ..]) if !argv.is_empty() => {
            confine::become_confined(text(confinement)?, argv)
        }
        ("confine", _) => {
            return wrong("confine takes a confinement as JSON, and a program with its arguments");
        }
        ("init", []) => init::be_init(),
        ("launch", [spec, argv @ ..]) if !argv.is_empty() => launch::become_program(text(spec)?, argv),
        ("guard", [cgroup, agent]) => processes::guard(cgroup, number(agent)?),
        ("launch" | "guard", _) => return wrong("launch and guard are for the agent itself"),
        ("--version" | "-V", _) => {
            println!("storlab-agent {} (protocol {PROTOCOL})", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        ("pcap" | "init", [.., last]) => return Err(unknown(last)),
        _ => return Err(unknown(command)),
    })
}

fn unknown(argument: &OsStr) -> OptionError {
    OptionError(format!("unknown argument {argument:?}"))
}

fn serve(arguments: Vec<OsString>) -> Result<ExitCode, OptionError> {
    Ok(match session::serve(&serve_options(arguments)?) {
        Ok(end) => end.exit_code(),
        Err(error) => {
            eprintln!("storlab-agent: {error}");
            ExitCode::from(1)
        }
    })
}

fn serve_options(arguments: impl IntoIterator<Item = OsString>) -> Result<ServeOptions, OptionError> {
    let mut options = ServeOptions::default();
    read_options(arguments, |name, values| {
        match name {
            "cgroup" => options.cgroup = Some(cgroup_name(&values.value()?)?),
            "port" => options.port = Some(values.value()?.into()),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(options)
}

/// It becomes one directory, whose name must not lead elsewhere.
fn cgroup_name(name: &OsStr) -> Result<String, OptionError> {
    name.to_str().filter(|name| is_file_name(name)).map(str::to_owned).ok_or_else(|| {
        let allowed = "letters, digits, '.', '_' and '-' only, and no leading '.'";
        OptionError(format!("{name:?} can't name a cgroup: {allowed}"))
    })
}

fn text(argument: &OsStr) -> Result<&str, OptionError> {
    argument.to_str().ok_or_else(|| OptionError(format!("{argument:?} is not UTF-8")))
}

fn number(argument: &OsStr) -> Result<u32, OptionError> {
    text(argument)?.parse().map_err(|_| OptionError(format!("{argument:?} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn serve_takes_a_cgroup_and_a_port() {
        let options = ServeOptions { cgroup: Some("lab-1".into()), port: Some("/dev/vport0p1".into()) };
        assert_eq!(serve_options(words("--cgroup lab-1 --port /dev/vport0p1")), Ok(options));
    }

    #[test]
    fn a_cgroups_name_can_not_lead_to_another_directory() {
        for name in ["../x", "a/b", ".", "..", "a b"] {
            let said = serve_options(["--cgroup", name].map(OsString::from)).unwrap_err().0;
            assert!(said.starts_with(&format!("{name:?} can't name a cgroup")), "{said}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |line: &str| dispatch(&words(line)).unwrap_err().0;
        assert_eq!(said(""), "a command is needed");
        assert_eq!(said("serve --port"), "missing argument for option '--port'");
        assert_eq!(said("serve --verbose"), "invalid option '--verbose'");
        assert_eq!(said("pcap x y"), "unknown argument \"y\"");
        assert_eq!(
            said("confine {}"),
            "confine takes a confinement as JSON, and a program with its arguments"
        );
        assert_eq!(said("files"), "files takes the name of one file, its specification");
        assert_eq!(said("dance --check"), "unknown argument \"dance\"");
    }
}
