//! `init` outside a guest. What it does in one, the tests of Storlab's virtual machines show.

mod common;

use std::process::Command;

use common::PROGRAM;

#[test]
fn init_started_by_hand_does_nothing() {
    let mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap();
    let before = mounts();
    let output = Command::new(PROGRAM).arg("init").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "storlab-agent: init is for the kernel of a guest, as process 1 in an initramfs; it has done nothing\n"
    );
    assert_eq!(mounts(), before);
}

#[test]
fn a_program_called_init_that_is_not_process_1_is_the_agent() {
    use std::os::unix::process::CommandExt;
    let output = Command::new(PROGRAM).arg0("/init").arg("--version").output().unwrap();
    assert!(output.status.success());
}
