//! What a confined program can't do though it may be root's.
//!
//! Sources: `capabilities(7)`, `landlock(7)`.

use std::str::FromStr;

use caps::{CapSet, Capability};
use landlock::{
    ABI, Access, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};
use nix::errno::Errno;
use nix::sys::prctl;

use super::Obstacle;

/// Keeps these capabilities and gives up all others, for good.
pub fn keep_only(names: &[String]) -> Result<(), Obstacle> {
    let kept = names.iter().map(|name| named(name)).collect::<Result<Vec<_>, _>>()?;
    restrict().map_err(|_| Obstacle { what: "landlock".into(), errno: Errno::EIO })?;
    prctl::set_no_new_privs().map_err(Obstacle::of("no_new_privs"))?;
    // Root gets at exec what its bounding set has, and what it inherits. An ordinary user gets what is ambient.
    let given_up = caps::all().into_iter().filter(|capability| !kept.contains(capability));
    for capability in given_up {
        if caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false) {
            caps::drop(None, CapSet::Bounding, capability).map_err(not_given_up)?;
        }
    }
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set).map_err(not_given_up)?;
    }
    Ok(())
}

fn named(name: &str) -> Result<Capability, Obstacle> {
    Capability::from_str(name)
        .map_err(|_| Obstacle { what: format!("unknown capability {name:?}"), errno: Errno::EINVAL })
}

/// What a set of capabilities that did not change is.
pub fn not_given_up(error: caps::errors::CapsError) -> Obstacle {
    Obstacle { what: error.to_string(), errno: Errno::EPERM }
}

/// Whoever is in a Landlock domain, whatever it restricts, changes no mount and looks into no process outside of it.
/// This one also makes no node of a device, sends no signal to processes outside, and connects to no abstract socket
/// of theirs; a kernel without one of these goes without.
fn restrict() -> Result<(), RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::Refer)?
        .scope(Scope::from_all(ABI::V6))?
        .create()?;
    // Links and renames to another directory are denied in every domain that does not allow them.
    let domain = match PathFd::new("/") {
        Ok(root) => ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer))?,
        Err(_) => ruleset,
    };
    domain.restrict_self().map(drop)
}
