//! `confine`: what a load can't do, tried by real programs as root, and as an ordinary user.

mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{Agent, Directory, output, sh, wait_until, with};
use nix::unistd::geteuid;
use serde_json::{Value, json};

/// A directory with one below it that may be written to.
struct Place {
    directory: Directory,
    agent: Agent,
}

impl Place {
    fn new(name: &str) -> Self {
        let directory = Directory::new(name);
        fs::create_dir(directory.path("inside")).unwrap();
        fs::write(directory.path("outside"), "precious").unwrap();
        Self { directory, agent: Agent::start() }
    }

    /// The exit status of a script, and what it printed, that may write to the directory inside, and to `devices`.
    fn run(&mut self, script: &str, devices: &[String]) -> (Option<u64>, String) {
        let confine = json!({"writable": [self.directory.path("inside")], "devices": devices});
        let cwd = self.directory.path("inside");
        let events = self.agent.ask(with(sh(script), json!({"confine": confine, "cwd": cwd})));
        assert_eq!(events[0].get("confined"), &Value::Bool(true), "{events:?}");
        (events.last().unwrap().get("code").as_u64(), output(&events, "stdout") + &output(&events, "stderr"))
    }

    fn refused(&mut self, script: &str) {
        let (code, printed) = self.run(script, &[]);
        assert_ne!(code, Some(0), "{script}: {printed}");
    }
}

/// A loop device of its own, detached when dropped.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Self {
        fs::write(file, vec![7; 1 << 20]).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Self(String::from_utf8(made.stdout).unwrap().trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn is_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("skipped: this test needs root");
    }
    root
}

#[test]
fn a_program_writes_where_it_may_and_nowhere_else() {
    let mut place = Place::new("confine-files");
    assert_eq!(place.run("echo x >a && mkdir b && mv a b/ && ln -s b c && rm -r b", &[]).0, Some(0));
    for script in
        ["echo x >../outside", "rm ../outside", "chmod 777 ../outside", "mv ../outside .", "ln ../outside b"]
    {
        place.refused(script);
    }
    for path in
        ["/etc/storlab-attack", "/tmp/storlab-attack", "/var/tmp/storlab-attack", "/run/storlab-attack"]
    {
        place.refused(&format!("echo x >{path}"));
    }
    place.refused("cat /proc/sys/vm/swappiness >/proc/sys/vm/swappiness");
    assert_eq!(fs::read_to_string(place.directory.path("outside")).unwrap(), "precious");
}

#[test]
fn a_program_has_what_any_program_may_expect() {
    let mut place = Place::new("confine-expected");
    let script = "set -e; echo x >/dev/null; head -c 4 /dev/zero >z; head -c 4 /dev/urandom >>z; cat </dev/fd/0; \
                  echo x >/dev/shm/mine; [ \"$(ls /dev/shm)\" = mine ]; [ \"$PWD\" = \"$(pwd -P)\" ]; cat /etc/passwd \
                  >p; ls /sys/block /proc/self/fd >/dev/null";
    assert_eq!(place.run(script, &[]), (Some(0), String::new()));
    assert!(!fs::exists("/dev/shm/mine").unwrap());
}

#[test]
fn a_program_sees_the_device_that_is_named_and_no_other() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-devices");
    let (mine, other) = (Loop::new(&place.directory.path("mine")), Loop::new(&place.directory.path("other")));
    let write =
        |path: &str| format!("dd if=/dev/zero of={path} bs=4k count=1 conv=notrunc,fsync status=none");
    let devices = [mine.0.clone()];
    assert_eq!(
        place.run(&format!("{} && blockdev --flushbufs {}", write(&mine.0), mine.0), &devices).0,
        Some(0)
    );
    assert_ne!(place.run(&format!("[ -e {} ]", other.0), &devices).0, Some(0));
    let number = "$(cat /sys/block/${0##*/}/dev | tr : ' ')"
        .replace("$0", &other.0)
        .replace("${0##*/}", &other.0[5..]);
    for script in [
        write(&other.0),
        format!("mknod n b {number} && {}", write("n")),
        format!("mknod /dev/n b {number} && {}", write("/dev/n")),
        format!("mount -t devtmpfs none inside && {}", write(&format!("inside/{}", &other.0[5..]))),
        "mount -o remount,rw /".into(),
        "umount /dev".into(),
        "echo x >/proc/1/root/etc/storlab-attack".into(),
        "nsenter --target 1 --mount touch /etc/storlab-attack".into(),
        format!("kill -0 {}", place.agent.pid()),
    ] {
        assert_ne!(place.run(&script, &devices).0, Some(0), "{script}");
    }
    assert!(!fs::exists("/etc/storlab-attack").unwrap());
    assert_eq!(fs::read(place.directory.path("other")).unwrap(), vec![7; 1 << 20]);
    assert_eq!(
        fs::read(place.directory.path("mine")).unwrap()[..8192],
        [vec![0; 4096], vec![7; 4096]].concat()
    );
}

#[test]
fn a_node_of_a_device_inside_of_what_is_measured_can_not_be_opened() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-node");
    let other = Loop::new(&place.directory.path("other"));
    let number = fs::read_to_string(format!("/sys/block/{}/dev", &other.0[5..])).unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let node = place.directory.path("inside/node");
    assert!(Command::new("mknod").arg(&node).args(["b", major, minor]).status().unwrap().success());
    place.refused("dd if=/dev/zero of=node bs=4k count=1 conv=notrunc status=none");
    assert_eq!(fs::read(place.directory.path("other")).unwrap(), vec![7; 1 << 20]);
}

#[test]
fn a_confined_program_gives_up_what_leads_out() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-privileges");
    let (code, printed) = place.run("grep -E '^(CapEff|NoNewPrivs)' /proc/self/status", &[]);
    assert_eq!(code, Some(0));
    let field =
        |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("NoNewPrivs:"), "1");
    let capabilities = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
    let has = |bit: u32| capabilities >> bit & 1 == 1;
    let (mknod, ptrace, module, admin) = (27, 19, 16, 21);
    assert!(has(admin) && !has(mknod) && !has(ptrace) && !has(module), "{printed}");
}

#[test]
fn a_confined_program_links_and_renames_to_other_directories() {
    let mut place = Place::new("confine-refer");
    let script =
        "mkdir below && echo x >a && ln a below/b && [ a -ef below/b ] && i=$(stat -c %i a) && mv a below/c";
    assert_eq!(
        place.run(&format!("{script} && [ $(stat -c %i below/c) = $i ]"), &[]),
        (Some(0), String::new())
    );
}

#[test]
fn what_was_mounted_for_a_program_is_free_when_it_has_ended() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-busy");
    let disk = Loop::new(&place.directory.path("disk"));
    assert!(Command::new("mkfs.ext4").args(["-q", "-F", &disk.0]).status().unwrap().success());
    let mounted = place.directory.path("inside");
    for _ in 0..20 {
        assert!(Command::new("mount").arg(&disk.0).arg(&mounted).status().unwrap().success());
        assert_eq!(
            place.run("for i in 1 2 3 4 5; do head -c 64k /dev/zero >f$i & done; wait", &[]).0,
            Some(0)
        );
        assert!(Command::new("umount").arg(&mounted).status().unwrap().success());
        // Opened for itself alone: whatever still had the file system would keep it from that.
        // A namespace of another test, which is just being made, may have it for a moment.
        wait_until("the disk is free", || {
            Command::new("mkfs.ext4").args(["-q", "-F", &disk.0]).status().unwrap().success()
        });
    }
}

#[test]
fn a_program_keeps_the_mount_that_it_needs_and_no_other_of_storlabs() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-mounts");
    let (mine, other) = (place.directory.path("storlab-1/mine"), place.directory.path("storlab-2/other"));
    for mounted in [&mine, &other] {
        fs::create_dir_all(mounted).unwrap();
        assert!(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(mounted).status().unwrap().success());
        fs::write(mounted.join("image"), "x").unwrap();
    }
    let image = mine.join("image").to_str().unwrap().to_owned();
    let (code, printed) = place
        .run(&format!("cat {image} && [ ! -e {}/image ]", other.display()), std::slice::from_ref(&image));
    for mounted in [&mine, &other] {
        assert!(Command::new("umount").arg(mounted).status().unwrap().success());
    }
    assert_eq!(code, Some(0), "{printed}");
}

#[test]
fn an_ordinary_user_is_confined_too_where_it_may_have_namespaces() {
    if !is_root() {
        return;
    }
    let directory = Directory::new("confine-user");
    for (name, mode) in [("", 0o755), ("inside", 0o755)] {
        let path = directory.path(name);
        let _ = fs::create_dir(&path);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    }
    // The program itself lies where that user can't look.
    let program = directory.path("storlab-agent");
    fs::copy(common::PROGRAM, &program).unwrap();
    let mut agent =
        Agent::start_command(Command::new(program).arg("serve").uid(65534).gid(65534).current_dir("/"));
    let inside = directory.path("inside");
    let script = sh("echo x >inside/mine; echo x >not-mine; id -u");
    let fields = json!({"confine": {"writable": [inside]}, "cwd": directory.path("")});
    let events = agent.ask(with(script, fields));
    assert_eq!(output(&events, "stdout"), "65534\n");
    assert!(fs::exists(directory.path("inside/mine")).unwrap());
    let confined = events[0].get("confined").as_bool().unwrap();
    assert_eq!(fs::exists(directory.path("not-mine")).unwrap(), !confined);
    println!("confined: {confined}");
}
