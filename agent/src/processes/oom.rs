//! Whom the kernel kills where memory runs out: who takes it, and not the agent of a guest, which ends with its agent.
//!
//! Source: `proc_pid_oom_score_adj(5)`. The agent is not exempt: a kernel with nobody left to kill would panic.

use std::fs;
use std::io;

use nix::unistd::Pid;

const SPARED: &str = "-900";
const OWN: &str = "/proc/self/oom_score_adj";

/// Others go first.
pub fn spare(process: Pid) -> io::Result<()> {
    fs::write(format!("/proc/{process}/oom_score_adj"), SPARED)
}

/// What an agent that is spared starts would be spared, too.
pub fn do_not_inherit() {
    if fs::read_to_string(OWN).is_ok_and(|score| score.trim_end() == SPARED) {
        let _ = fs::write(OWN, "0");
    }
}
