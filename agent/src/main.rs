//! The program: `serve` for the controller, `init` for the kernel of a guest, and the hidden `launch` through which
//! every run is started.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use storlab_agent::{cli, init};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if init::is_wanted(arguments.next().as_deref()) {
        return init::be_init();
    }
    cli::run(arguments)
}
