# shellcheck shell=bash
# What all scripts share: sentences, log files, privileges. Sourced; leaves the caller in the checkout's root.

set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
cd -- "$root"
made=.make # logs, stamps and private tools

# Debian keeps mkfs and losetup off an ordinary user's PATH, and a fresh rustup is not on it before the next login.
PATH=$PATH:/usr/sbin:/sbin${HOME:+:$HOME/.cargo/bin}

say() { printf '%s\n' "$*"; }

# One sentence that names the remedy. Status 2: something is missing, and nothing was left half-done.
fail() {
    printf 'storlab: %s\n' "$*" >&2
    exit 2
}

have() { command -v "$1" >/dev/null 2>&1; }

# quietly NAME COMMAND…: its output goes to a log, the log's end to the terminal if it fails.
quietly() {
    local log=$made/$1.log
    shift
    "$@" >"$log" 2>&1 </dev/null && return
    local status=$?
    printf '$ %s\n' "$*" >&2
    tail -n 20 "$log" >&2
    printf 'storlab: that ended with status %s; all of its output is in %s\n' "$status" "$root/$log" >&2
    return "$status"
}

# How this user becomes root: "root", "sudo" (without a password), or "none".
privileges() {
    if [[ $(id -u) == 0 ]]; then
        say root
    elif have sudo && sudo -n true 2>/dev/null; then
        say sudo
    else
        say none
    fi
}

as_root() {
    case $(privileges) in
        root) "$@" ;;
        sudo) sudo -n "$@" ;;
        none) return 1 ;;
    esac
}

# as_if_fresh PROGRAM…: as on a machine where nobody has mounted tracefs or debugfs: in a mount namespace without them.
# What the machine unmounts meanwhile is unmounted there, too. Who isn't root can use neither anyway.
as_if_fresh() {
    if [[ $(id -u) == 0 ]] && unshare --mount true 2>/dev/null; then
        # shellcheck disable=SC2016 # the inner shell's arguments
        unshare --mount --propagation slave sh -c 'umount --all --lazy --types tracefs,debugfs; exec "$@"' sh "$@"
    else
        "$@"
    fi
}

need_writable_checkout() {
    if [[ ! -w . ]] || ! mkdir -p "$made" 2>/dev/null || [[ ! -w $made ]]; then
        fail "$root can't be written to by $(id -un 2>/dev/null || id -u): clone Storlab into a folder of your own."
    fi
}

# What serves every checkout, and can be made again. Some users, those of services, have no home to keep it in.
# shellcheck disable=SC2034 # others use it
caches=${XDG_CACHE_HOME:-${HOME:-}/.cache}/storlab
if [[ ! -w ${HOME:-/nonexistent} ]]; then
    # shellcheck disable=SC2034
    caches=$root/$made/caches
    export UV_CACHE_DIR=$root/$made/uv-cache CARGO_HOME=$root/$made/cargo
fi
