//! `confine`: whom a program of root's becomes, what is handed to it, and a root with that alone.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use common::confined::{Loop, Place, is_root};
use serde_json::json;

/// A user that nobody is.
const HEIR: u32 = 0x7123_4567;

#[test]
fn a_program_becomes_a_user_to_whom_what_it_is_given_is_handed() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-heir");
    let disk = Loop::new(&place.directory.path("disk"));
    fs::write(place.directory.path("inside/laid-out"), "by root").unwrap();
    let shown = place.directory.path("shown");
    fs::write(&shown, "it").unwrap();
    fs::set_permissions(&shown, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let script = format!(
        "set -e; id -u; id -g; id -G; stat -c '%u %g' . laid-out {disk}; echo more >>laid-out; echo x >made; mkdir below
         dd if=/dev/zero of={disk} bs=4k count=1 conv=notrunc,fsync status=none; cat {shown}; echo ' seen' >/dev/stdout
         echo x >>{shown} || true; grep -E '^Cap(Eff|Prm|Bnd)' /proc/self/status | grep -v 0000000000000000 || true
         head -c 1 /etc/shadow || true; ls /root || true",
        disk = disk.0,
        shown = shown.display(),
    );
    let confine = json!({"user": HEIR, "devices": [disk.0], "visible": [shown]});
    let (code, printed) = place.run_with(&script, confine);
    assert_eq!(code, Some(0), "{printed}");
    let own = format!("{HEIR} {HEIR}\n").repeat(3);
    assert!(printed.starts_with(&format!("{HEIR}\n{HEIR}\n{HEIR}\n{own}it seen\n")), "{printed}");
    let refused = printed.lines().skip(7).map(|line| line.rsplit_once(": ").unwrap().1).collect::<Vec<_>>();
    assert_eq!(refused, ["Read-only file system", "Permission denied", "Permission denied"], "{printed}");
    for made in ["laid-out", "made", "below"] {
        let found = fs::metadata(place.directory.path("inside").join(made)).unwrap();
        assert_eq!((found.uid(), found.gid()), (0, 0), "{made}");
    }
    assert_eq!(fs::read(place.directory.path("disk")).unwrap()[0], 0);
}

#[test]
fn a_program_stays_root_if_its_file_system_can_not_be_handed_over() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-no-heir");
    let over = place.directory.path("inside");
    let layers = ["upper", "work"].map(|name| place.directory.path(name));
    layers.iter().for_each(|layer| fs::create_dir(layer).unwrap());
    let [upper, work] = layers.map(|layer| layer.display().to_string());
    let options = format!("lowerdir=/usr/bin,upperdir={upper},workdir={work}");
    let mounted = Command::new("mount").args(["-t", "overlay", "none", "-o", &options]).arg(&over).status();
    assert!(mounted.unwrap().success());
    let said = place.run_with(
        "id -u; touch a && chown 1:1 a && stat -c %u a",
        json!({"user": HEIR, "capabilities": ["CAP_CHOWN"]}),
    );
    assert!(Command::new("umount").arg(&over).status().unwrap().success());
    assert_eq!(said, (Some(0), "0\n1\n".into()));
}

#[test]
fn a_root_of_its_own_has_what_the_program_is_given_and_nothing_else() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-bare");
    let shown = place.directory.path("shown");
    fs::write(&shown, "it\n").unwrap();
    let disk = Loop::new(&place.directory.path("disk"));
    let script = format!(
        "set -e; cat {shown}; echo x >made; ls /; ls -A /etc /dev/shm; ls {above}; test -b {disk}
         for path in {shown} /mine /usr/mine; do if echo x 2>/dev/null >>$path; then exit 9; fi; done",
        shown = shown.display(),
        above = place.directory.path("").display(),
        disk = disk.0,
    );
    let visible = json!(["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", shown]);
    for mounts_only in [true, false] {
        let confine =
            json!({"bare": true, "mounts_only": mounts_only, "visible": visible, "devices": [disk.0]});
        let (code, printed) = place.run_with(&script, confine);
        assert_eq!(code, Some(0), "{printed}");
        let seen: Vec<_> = printed.split_whitespace().collect();
        for missing in ["home", "root", "run", "boot", "shadow", "passwd", "outside", "disk"] {
            assert!(!seen.contains(&missing), "{missing}: {printed}");
        }
        assert!(
            ["it", "dev", "usr", "ld.so.cache", "inside"].iter().all(|one| seen.contains(one)),
            "{printed}"
        );
        fs::remove_file(place.directory.path("inside/made")).unwrap();
    }
}

#[test]
fn the_settings_of_the_kernel_are_read_only_for_a_root_of_its_own() {
    if !is_root() {
        return;
    }
    let mut place = Place::new("confine-bare-proc");
    let confine = json!({"bare": true, "visible": ["/usr", "/bin", "/lib", "/lib64"], "capabilities": ["CAP_DAC_OVERRIDE"]});
    let script = "cat /proc/sys/fs/nr_open && echo $$ && ! echo 1 2>/dev/null >/proc/sys/vm/drop_caches";
    let (code, printed) = place.run_with(script, confine);
    let lines: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert!(code == Some(0) && lines[1] < 10, "{code:?} {printed}");
}
