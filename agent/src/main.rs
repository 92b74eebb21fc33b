//! The program: `serve` for the controller, `init` for the kernel of a guest, and the hidden `launch` through which
//! every run is started.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use storlab_agent::cli::{self, Command};
use storlab_agent::{
    confine, folios, init, launch, layout, locks, pcap, perf, processes, profile, relay, session, storm, tcp,
    trace,
};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if init::is_wanted(arguments.next().as_deref()) {
        return init::be_init();
    }
    match cli::parse(arguments) {
        Ok(Command::Serve(options)) => match session::serve(&options) {
            Ok(end) => end.exit_code(),
            Err(error) => {
                eprintln!("storlab-agent: {error}");
                ExitCode::from(1)
            }
        },
        Ok(Command::Trace(arguments)) => trace::run(arguments),
        Ok(Command::Tcp(arguments)) => tcp::run(arguments),
        Ok(Command::Counters(arguments)) => perf::run(arguments),
        Ok(Command::Profile(arguments)) => profile::run(arguments),
        Ok(Command::Locks(arguments)) => locks::run(arguments),
        Ok(Command::Folios(arguments)) => folios::run(arguments),
        Ok(Command::Pcap(file)) => pcap::run(file.as_deref()),
        Ok(Command::Files(spec)) => storm::run(&spec),
        Ok(Command::Layout(spec)) => layout::run(&spec),
        Ok(Command::Relay(arguments)) => relay::run(arguments),
        Ok(Command::Init) => init::be_init(),
        Ok(Command::Confine { confinement, argv }) => confine::become_confined(&confinement, &argv),
        Ok(Command::Launch { spec, argv }) => launch::become_program(&spec, &argv),
        Ok(Command::Guard { cgroup, agent }) => processes::guard(&cgroup, agent),
        Ok(Command::Version) => {
            println!("{}", cli::version());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("storlab-agent: {error}\n{}", cli::USAGE);
            ExitCode::from(2)
        }
    }
}
