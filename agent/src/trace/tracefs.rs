//! tracefs, where the kernel describes its classic tracepoints. Nobody needs to have mounted it: where nobody has, a
//! thread mounts it in a mount namespace of its own, which ends with the thread.

use std::fs;
use std::path::Path;
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{chdir, pivot_root};

/// Where tracefs is mounted. The second is for those that mount nothing but debugfs.
const FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Why tracefs does not tell what is needed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NoTracefs {
    #[error(
        "tracefs is not mounted, and this process may not mount it, which takes CAP_SYS_ADMIN: run `mount -t tracefs tracefs /sys/kernel/tracing` as root"
    )]
    NotAllowed,
    /// The kernel was built without it.
    #[error("this kernel has no tracefs, and thus no tracepoints")]
    Absent,
    /// An event that cannot be understood.
    #[error("tracefs does not tell where the event {0} has its field {1}")]
    NoField(String, &'static str),
    /// Anything else.
    #[error(
        "tracefs is not mounted, and cannot be mounted in a namespace of this process's own: cannot {0}: {1}"
    )]
    System(&'static str, Errno),
}

/// Does `work`, which may read tracefs: here if it is mounted, else on a thread that has mounted it for itself.
pub fn with<T, E>(work: impl FnOnce() -> Result<T, E> + Send) -> Result<T, E>
where
    T: Send,
    E: Send + From<NoTracefs>,
{
    if FOLDERS.iter().any(|folder| shows_events(folder)) {
        return work();
    }
    thread::scope(|scope| {
        let alone = scope.spawn(|| {
            enter_namespace()?;
            work()
        });
        alone.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Where a field lies in what an event tells.
pub fn field_offset(category: &str, event: &str, field: &'static str) -> Result<u32, NoTracefs> {
    let path = |folder| Path::new(folder).join("events").join(category).join(event).join("format");
    let format = FOLDERS.into_iter().find_map(|folder| fs::read_to_string(path(folder)).ok());
    let offset = format.as_deref().and_then(|format| parse_offset(format, field));
    offset.ok_or_else(|| NoTracefs::NoField(event.to_owned(), field))
}

/// Of a line such as `field:char rwbs[10];  offset:34;  size:10;  signed:0;`.
fn parse_offset(format: &str, field: &str) -> Option<u32> {
    let named = |line: &&str| {
        let declared = line.trim_start().strip_prefix("field:").and_then(|rest| rest.split(';').next());
        let name = declared.and_then(|declared| declared.split_whitespace().last());
        name.is_some_and(|name| name.split('[').next() == Some(field))
    };
    format.lines().find(named)?.split_once("offset:")?.1.split(';').next()?.parse().ok()
}

fn shows_events(folder: &str) -> bool {
    Path::new(folder).join("events/block").is_dir()
}

/// Gives this thread a mount namespace that holds tracefs and nothing else. A copy of all the other mounts would keep
/// file systems busy that somebody unmounts meanwhile. `pivot_root(2)` has the trick with the two dots.
fn enter_namespace() -> Result<(), NoTracefs> {
    const ROOT: &str = "/sys"; // any directory that is always there
    let nothing = None::<&str>;
    let because = |what| {
        move |errno| match errno {
            Errno::EPERM | Errno::EACCES => NoTracefs::NotAllowed,
            Errno::ENODEV => NoTracefs::Absent,
            _ => NoTracefs::System(what, errno),
        }
    };
    unshare(CloneFlags::CLONE_NEWNS).map_err(because("leave the mount namespace"))?;
    mount(nothing, "/", nothing, MsFlags::MS_PRIVATE | MsFlags::MS_REC, nothing)
        .map_err(because("make the mounts private"))?;
    mount(Some("tmpfs"), ROOT, Some("tmpfs"), MsFlags::empty(), nothing).map_err(because("mount a tmpfs"))?;
    let folder = format!("{ROOT}{}", FOLDERS[0]);
    fs::create_dir_all(&folder)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
        .map_err(because("make its directory"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tracefs"), folder.as_str(), Some("tracefs"), flags, nothing)
        .map_err(because("mount tracefs"))?;
    chdir(ROOT).map_err(because("enter the new root"))?;
    pivot_root(".", ".").map_err(because("change the root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(because("release the other mounts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_an_event_is_found_in_its_format() {
        let format = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:char rwbs[10];\toffset:34;\tsize:10;\n\tfield:unsigned char order;\toffset:36;\tsize:1;\n";
        assert_eq!(parse_offset(format, "rwbs"), Some(34));
        assert_eq!(parse_offset(format, "order"), Some(36));
        assert_eq!(parse_offset(format, "char"), None);
    }
}
