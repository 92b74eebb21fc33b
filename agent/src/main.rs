//! The program: `serve` for the controller, and the hidden `launch` through which every run is started.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use storlab_agent::cli::{self, Command};
use storlab_agent::{launch, session};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os().skip(1)) {
        Ok(Command::Serve(options)) => match session::serve(&options) {
            Ok(end) => end.exit_code(),
            Err(error) => {
                eprintln!("storlab-agent: {error}");
                ExitCode::from(1)
            }
        },
        Ok(Command::Launch { spec, argv }) => launch::become_program(&spec, &argv),
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
