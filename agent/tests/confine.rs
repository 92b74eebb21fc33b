//! `confine`: what a load can't do, tried by real programs as root, and as an ordinary user.

mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::confined::{Loop, Place, is_root};
use common::{Agent, Directory, output, sh, wait_until, with};
use serde_json::json;

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
    assert_eq!(place.run(&write(&mine.0), &devices).0, Some(0));
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
    let (code, printed) = place.run("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status", &[]);
    assert_eq!(code, Some(0));
    let field =
        |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("NoNewPrivs:"), "1");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(u64::from_str_radix(&field(set), 16).unwrap(), 0, "{printed}");
    }
    assert_eq!(field("Seccomp:"), "2");
}

#[test]
fn a_confined_program_keeps_the_capability_that_is_named() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-capabilities");
    place.refused("touch a && chown 1:1 a");
    let chown = json!({"capabilities": ["CAP_CHOWN"]});
    assert_eq!(place.run_with("touch b && chown 1:1 b && stat -c %u b", chown), (Some(0), "1\n".into()));
}

#[test]
fn a_name_that_is_none_of_the_list_is_an_error_and_nothing_runs() {
    let mut place = Place::new("confine-names");
    let fields = json!({"confine": {"capabilities": ["CAP_ALL"]}, "cwd": place.directory.path("inside")});
    let events = place.agent.ask(with(sh("touch ran"), fields));
    assert!(events.last().unwrap().is("error"), "{events:?}");
    assert!(!fs::exists(place.directory.path("inside/ran")).unwrap());
}

#[test]
fn io_uring_is_for_those_who_declare_it() {
    let mut place = Place::new("confine-io-uring");
    let script = format!(
        "python3 -c 'import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True)
sys.exit(libc.syscall({}, 1, ctypes.create_string_buffer(120)) < 0 and ctypes.get_errno())'",
        libc::SYS_io_uring_setup,
    );
    let refused = place.run_with(&script, json!({}));
    assert_eq!(refused, (Some(libc::EPERM as u64), String::new()));
    assert_eq!(place.run_with(&script, json!({"io_uring": true})).0, Some(0));
}

#[test]
fn the_cache_of_a_device_is_emptied_before_the_program_starts() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-flush");
    let disk = Loop::new(&place.directory.path("disk"));
    let write = format!("dd if=/dev/zero of={} bs=4k count=1 conv=notrunc status=none", disk.0);
    assert!(Command::new("sh").args(["-c", &write]).status().unwrap().success());
    let image = place.directory.path("disk").to_str().unwrap().to_owned();
    let first = format!("od -An -tx1 -N1 {image}");
    let fields = json!({"devices": [disk.0], "flushed": [disk.0], "visible": [image]});
    assert_eq!(place.run_with(&first, fields), (Some(0), " 00\n".into()));
    place.refused(&format!("blockdev --flushbufs {}", disk.0));
}

#[test]
fn a_program_sees_its_own_processes_and_is_not_the_first() {
    let mut place = Place::new("confine-processes");
    let (code, printed) =
        place.run("set -- /proc/[0-9]*; echo $# $$; sleep 77 & kill $!; wait $!; exit 7", &[]);
    assert_eq!(code, Some(7), "{printed}");
    let numbers: Vec<u64> = printed.split_whitespace().take(2).map(|each| each.parse().unwrap()).collect();
    assert!(numbers[0] <= 3 && numbers[1] <= 3, "{printed}");
}

#[test]
fn what_a_program_leaves_behind_is_reaped_and_ends_with_it() {
    let mut place = Place::new("confine-orphans");
    let script = "(true & true &); (setsid sleep 7781 >/dev/null 2>&1 &); sleep 0.3; \
                  grep -l '^State:.Z' /proc/[0-9]*/status; true";
    assert_eq!(place.run(script, &[]), (Some(0), String::new()));
    let found = Command::new("pgrep").args(["-f", "sleep 7781"]).output().unwrap();
    assert!(found.stdout.is_empty(), "{found:?}");
}

#[test]
fn a_program_is_told_to_end_by_the_signal_and_its_end_is_the_runs() {
    let mut place = Place::new("confine-signals");
    let confine = json!({"confine": {"writable": [place.directory.path("inside")]}});
    for (script, stop, code, signal) in [
        (
            "trap 'exit 9' INT; echo up; while :; do sleep 0.05; done",
            json!({"signal": "SIGINT"}),
            Some(9),
            None,
        ),
        ("echo up; sleep 60", json!({}), None, Some("SIGTERM")),
        (
            "trap '' TERM; echo up; sleep 60; sleep 60",
            json!({"grace_ns": 200_000_000}),
            None,
            Some("SIGKILL"),
        ),
    ] {
        let (id, _) = place.agent.start_run(with(sh(script), confine.clone()));
        while !place.agent.next_of(id).is("stdout") {}
        place.agent.ask(with(json!({"op": "stop", "run": id}), stop));
        let exit = place.agent.finish_last(id);
        assert_eq!(exit.get("code").as_u64(), code, "{script}: {exit:?}");
        assert_eq!(exit.get("signal").as_str(), signal, "{script}: {exit:?}");
    }
    let (code, _) = place.run("kill -SEGV $$", &[]);
    assert_eq!(code, None);
}

#[test]
fn the_machine_keeps_its_names_and_network() {
    let mut place = Place::new("confine-names-network");
    place.refused("hostname evil");
    let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listening.local_addr().unwrap().port();
    let reach = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let bash = format!("bash -c '{reach}'");
    assert_ne!(place.run(&bash, &[]).0, Some(0));
    assert_eq!(place.run_with(&bash, json!({"network": true})).0, Some(0));
}

#[test]
fn of_folders_that_are_hidden_it_sees_what_it_was_given() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-hidden");
    assert_eq!(place.run("ls -A /run", &[]), (Some(0), String::new()));
    let closed = place.directory.path("closed");
    fs::create_dir_all(closed.join("mine")).unwrap();
    fs::write(closed.join("secret"), "x").unwrap();
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&closed, Some(65534), Some(65534)).unwrap();
    place.refused(&format!("cat {}/secret", closed.display()));
    let given = json!({"visible": [closed.join("mine")]});
    let (code, printed) = place.run_with(&format!("ls {0} && ! touch {0}/mine/x", closed.display()), given);
    assert_eq!((code, printed.lines().next()), (Some(0), Some("mine")), "{printed}");
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
