//! What a confined program can't do though it may be root's.
//!
//! Sources: `capabilities(7)`, `landlock(7)`.

use caps::{CapSet, Capability};
use landlock::{
    AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope,
};
use nix::errno::Errno;
use nix::sys::prctl;

use super::Obstacle;

/// What no load needs, and what leads out of its mount namespace. Kept are those by which storage is used: what the
/// owner of a file may do, priorities, locked memory, and `CAP_SYS_ADMIN`, without which no cache of a device is
/// flushed (`BLKFLSBUF`) and no file system trimmed (`FITRIM`).
const GIVEN_UP: [Capability; 20] = [
    Capability::CAP_AUDIT_CONTROL,
    Capability::CAP_AUDIT_READ,
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_BLOCK_SUSPEND,
    Capability::CAP_BPF,
    Capability::CAP_CHECKPOINT_RESTORE,
    Capability::CAP_DAC_READ_SEARCH, // open_by_handle_at(2) knows no paths
    Capability::CAP_MAC_ADMIN,
    Capability::CAP_MAC_OVERRIDE,
    Capability::CAP_MKNOD,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_SYS_BOOT,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_SYS_MODULE,
    Capability::CAP_SYS_PTRACE, // /proc/1/root is the machine's own tree of files
    Capability::CAP_SYS_RAWIO,
    Capability::CAP_SYS_TIME,
    Capability::CAP_SYSLOG,
    Capability::CAP_WAKE_ALARM,
];

/// Gives them up for good. `on_device`: the program has a device to work on.
pub fn give_up(on_device: bool) -> Result<(), Obstacle> {
    let fixed = restrict().map_err(|_| Obstacle { what: "landlock".into(), errno: Errno::EIO })?;
    prctl::set_no_new_privs().map_err(Obstacle::of("no_new_privs"))?;
    // Root gets at exec what its bounding set has. An ordinary user gets nothing, and may have no right to change it.
    let also = (!fixed && !on_device).then_some(Capability::CAP_SYS_ADMIN); // or it could change its mounts back
    for capability in GIVEN_UP.into_iter().chain(also) {
        let _ = caps::drop(None, CapSet::Bounding, capability);
    }
    Ok(())
}

/// Whoever is in a Landlock domain, whatever it restricts, changes no mount and looks into no process outside of it.
/// This one also makes no node of a device, and sends no signal to processes outside. `false` on a kernel without.
fn restrict() -> Result<bool, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::Refer)?
        .scope(Scope::Signal)?
        .create()?;
    // Links and renames to another directory are denied in every domain that does not allow them.
    let domain = match PathFd::new("/") {
        Ok(root) => ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer))?,
        Err(_) => ruleset,
    }
    .restrict_self()?;
    Ok(domain.ruleset != RulesetStatus::NotEnforced)
}
