# shellcheck shell=bash
# Installs Debian packages of scripts/packages.txt: only those that are missing. Sourced after common.sh.

# missing_packages GROUP…: the packages of these groups that are not there, one a line.
missing_packages() {
    local group package witness
    while read -r group package witness; do
        [[ " $* " == *" $group "* ]] || continue
        [[ -e $witness ]] || have "$witness" || say "$package"
    done < <(grep -v '^ *#' scripts/packages.txt)
}

can_install() { have apt-get && [[ $(privileges) != none ]]; }

# How the user gets these packages by hand, where we can't.
by_hand() {
    if ! have apt-get; then
        say "install it with this system's package manager (Debian calls it: $*)"
    else
        say "run \`sudo apt-get install $*\`, or run make as root"
    fi
}

# need_packages GROUP…: fails, before anything is done, where something is missing and can't be installed.
need_packages() {
    local -a missing
    mapfile -t missing < <(missing_packages "$@")
    ((${#missing[@]} == 0)) || can_install ||
        fail "missing here and not to be installed without root: ${missing[*]}; $(by_hand "${missing[@]}")."
}

install_packages() {
    local -a missing newer=()
    local group
    local -a groups=()
    for group in "$@"; do
        if [[ $group == vm ]] && is_bookworm; then
            mapfile -t newer < <(missing_packages vm)
        else
            groups+=("$group")
        fi
    done
    mapfile -t missing < <(missing_packages "${groups[@]}")
    ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
    ((${#newer[@]} == 0)) || {
        need_backports
        apt_install --target-release bookworm-backports "${newer[@]}"
    }
}

is_bookworm() { grep -qs '^VERSION_CODENAME=bookworm$' /etc/os-release; }

# Backports among apt's sources: added only where no source of the user's has them.
need_backports() {
    local list=/etc/apt/sources.list.d/storlab-backports.list
    ! apt-cache policy | grep -q 'n=bookworm-backports' || return 0
    [[ ! -e $list ]] || return 0
    say "Adding Debian's backports to apt's sources, in $list"
    say "deb http://deb.debian.org/debian bookworm-backports main" | as_root tee "$list" >/dev/null
}

apt_install() {
    say "Installing with apt: ${*#--target-release}"
    # The lists may be absent or too old to name files that the mirror still has: then, and only then, update them.
    if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null && apt_get install "$@" >"$made/apt.log" 2>&1; then
        return
    fi
    # One source that doesn't answer makes update fail; whether that matters, the installation tells.
    apt_get update >"$made/apt-update.log" 2>&1 || true
    quietly apt apt_get install "$@"
}

apt_get() {
    local action=$1
    shift
    as_root env DEBIAN_FRONTEND=noninteractive apt-get "$action" --quiet --yes --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "$@" </dev/null
}
