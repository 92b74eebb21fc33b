//! A process that is born in a cgroup, which `std::process` can't start.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use nix::errno::Errno;
use nix::unistd::{Pid, setpgid};

/// What a new process executes. It is all there before the process is, which must not ask for memory: another thread
/// may have been about to get some when its copy was made.
#[derive(Debug)]
pub struct Image<'a> {
    path: CString,
    argv: Vec<CString>,
    environment: Vec<CString>,
    /// What becomes its standard streams; each of them has a higher number.
    streams: [BorrowedFd<'a>; 3],
}

impl<'a> Image<'a> {
    /// What this command would execute under the name `arg0`, with the environment that it would have.
    pub fn of(command: &Command, arg0: &str, streams: [BorrowedFd<'a>; 3]) -> io::Result<Self> {
        let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => environment.insert(name.into(), value.into()),
                None => environment.remove(name),
            };
        }
        let pair = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
        let argv = std::iter::once(OsStr::new(arg0)).chain(command.get_args());
        Ok(Self {
            path: CString::new(command.get_program().as_bytes())?,
            argv: argv.map(|each| CString::new(each.as_bytes())).collect::<Result<_, _>>()?,
            environment: environment.into_iter().map(pair).map(CString::new).collect::<Result<_, _>>()?,
            streams,
        })
    }
}

/// From `linux/sched.h`; libc's is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Starts a process in a process group of its own, and in this cgroup from its first instant: `clone3(2)`, since
/// Linux 5.7. To be moved into one it would wait for a grace period of RCU: 9 to 17 ms in an emulated guest.
pub fn spawn_into(cgroup: BorrowedFd, image: &Image) -> Result<Pid, Errno> {
    let pointers = |strings: &[CString]| -> Vec<_> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, environment) = (pointers(&image.argv), pointers(&image.environment));
    // SAFETY: an all-zero clone_args is a valid value of that plain C struct.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.flags = CLONE_INTO_CGROUP;
    how.exit_signal = libc::SIGCHLD as u64;
    how.cgroup = cgroup.as_raw_fd() as u64;
    // SAFETY: the structure is as long as is said. The child has a copy of all memory, as after fork, and there does
    // nothing but system calls on what was made before: it touches no lock, and ends in one of the two last lines.
    let pid = unsafe {
        let pid = libc::syscall(libc::SYS_clone3, &raw mut how, size_of::<libc::clone_args>());
        if pid == 0 {
            libc::setpgid(0, 0);
            for (number, stream) in (0..).zip(image.streams) {
                libc::dup2(stream.as_raw_fd(), number);
            }
            libc::execve(image.path.as_ptr(), argv.as_ptr(), environment.as_ptr());
            libc::_exit(127);
        }
        pid
    };
    let pid = Pid::from_raw(Errno::result(pid)? as i32);
    let _ = setpgid(pid, pid); // whichever of the two comes first
    Ok(pid)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;
    use crate::processes::AgentCgroup;

    #[test]
    fn a_process_is_in_its_cgroup_its_group_and_its_environment_from_the_first_instant() {
        let Some(of_all) = AgentCgroup::create("storlab-test-spawn") else {
            println!("skipped: no cgroup of version 2 can be made here");
            return;
        };
        let run = of_all.create_run(1, None).unwrap();
        let kept = std::env::temp_dir().join(format!("storlab-spawn-{}", std::process::id()));
        let (output, nothing) = (File::create(&kept).unwrap(), File::open("/dev/null").unwrap());
        let mut command = Command::new("/bin/sh");
        command.args([
            "-c",
            "cat /proc/self/cgroup; cut -d' ' -f5 /proc/$$/stat; echo $$ $0 $SET $PATH; exit 7",
        ]);
        command.env("SET", "here").env_remove("PATH").env("PATH", "/bin:/usr/bin");
        let image = Image::of(&command, "name", [nothing.as_fd(), output.as_fd(), nothing.as_fd()]).unwrap();
        let pid = spawn_into(File::open(run.path()).unwrap().as_fd(), &image).unwrap();
        assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, 7)));
        let said = fs::read_to_string(&kept).unwrap();
        fs::remove_file(&kept).unwrap();
        assert!(of_all.remove(std::time::Duration::from_secs(5)));
        let lines: Vec<_> = said.lines().collect();
        let own = run.path().file_name().unwrap().to_string_lossy();
        assert!(lines.iter().any(|line| line.starts_with("0::") && line.ends_with(&*own)), "{said}");
        let rest = [pid.to_string(), format!("{pid} name here /bin:/usr/bin")];
        assert_eq!(lines[lines.len() - 2..], rest, "{said}");
    }

    #[test]
    fn a_directory_that_is_no_cgroup_takes_none() {
        let nothing = File::open("/dev/null").unwrap();
        let command = Command::new("/bin/true");
        let image = Image::of(&command, "true", [nothing.as_fd(); 3]).unwrap();
        assert!(spawn_into(File::open("/").unwrap().as_fd(), &image).is_err());
    }
}
