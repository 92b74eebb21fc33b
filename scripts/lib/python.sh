# shellcheck shell=bash
# Python, uv, and the environment in .venv that uv.lock describes. Sourced after common.sh and packages.sh.

oldest_python=3.11
oldest_uv=0.5.0 # the first that reads dependency groups and lock files of this kind without ado
uv=""

is_new_enough_python() {
    "$1" -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$oldest_python'.split('.'))))" 2>/dev/null
}

# The interpreter to use: $PYTHON, else the first on PATH that is new enough. Nothing where there is none.
find_python() {
    local name
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if have "$name" && is_new_enough_python "$name"; then
            command -v "$name"
            return
        fi
    done
}

# Fails with one sentence unless there is a Python, or none at all where apt can bring one.
need_python() {
    [[ -z $(find_python) ]] || return 0
    local name=${PYTHON:-python3}
    if have "$name"; then
        fail "Storlab needs Python $oldest_python or newer, and $name here is $("$name" -c \
            'import platform; print(platform.python_version())' 2>/dev/null || say broken):" \
            "install a newer one and name it, as in \`make demo PYTHON=/usr/local/bin/python3.12\`."
    elif [[ ${PYTHON:-} ]] || ! can_install; then
        fail "Storlab needs Python $oldest_python or newer, and there is no $name: $(by_hand python3)."
    fi
}

# python_environment demo|dev|bench: the environment from the lock file; dev has the tools for tests and lint as well,
# bench what benchmarks also compare with.
python_environment() {
    local kind=$1 proof=storlab key stamp
    local -a enough=("$made/python-$kind" "$made/python-bench")
    [[ $kind == demo ]] && enough+=("$made/python-dev") || proof=pytest
    key="$root $(cat uv.lock pyproject.toml | sha256sum)"
    for stamp in "${enough[@]}"; do
        if [[ -x .venv/bin/$proof && -e $stamp && $(<"$stamp") == "$key" ]]; then
            return
        fi
    done
    [[ $(find_python) ]] || apt_install python3
    [[ $(find_python) ]] || need_python
    forget_moved_environment
    find_uv
    say "Preparing the Python environment in .venv"
    # An environment that works keeps its interpreter. `--inexact`: a demo doesn't remove what tests need. Libraries are
    # compiled now, on all cores, and not by the first command that loads them, or by each where Python may not write.
    local -a options=(--compile-bytecode --all-extras)
    .venv/bin/python -c '' 2>/dev/null || options+=(--python "$(find_python)")
    [[ $kind != demo ]] || options+=(--no-default-groups --inexact)
    [[ $kind != bench ]] || options+=(--group bench)
    quietly uv uv_here sync --frozen "${options[@]}"
    say "$key" >"$made/python-$kind"
}

uv_here() { UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never "$uv" "$@"; }

# The programs in an environment name its path: after a move they don't start.
forget_moved_environment() {
    local stamp
    for stamp in "$made"/python-*; do
        [[ -e $stamp ]] || continue
        [[ $(<"$stamp") == "$root "* ]] || rm -rf .venv "$stamp"
    done
}

is_usable_uv() {
    local version
    version=$("$1" --version 2>/dev/null | cut -d ' ' -f 2) && [[ $version ]] &&
        printf '%s\n' "$oldest_uv" "$version" | sort --version-sort --check=quiet
}

# Sets `uv`: one on PATH, where its installer puts it, or our own.
find_uv() {
    local candidate
    for candidate in uv "${HOME:-}/.local/bin/uv" "$made/uv/bin/uv"; do
        if is_usable_uv "$candidate"; then
            uv=$candidate
            return
        fi
    done
    say "Installing uv in $made/uv"
    install_uv "$(find_python)"
    uv=$made/uv/bin/uv
}

# Debian's Python refuses `pip install` (PEP 668), and may have neither pip nor what `venv` needs to make one.
install_uv() {
    local python=$1 wanted="uv>=0.9,<1"
    rm -rf "$made/uv"
    if [[ $python == /usr/bin/python3 ]] && ! "$python" -c 'import ensurepip' 2>/dev/null && can_install; then
        apt_install python3-venv
    fi
    if "$python" -c 'import ensurepip' 2>/dev/null && "$python" -m venv "$made/uv" >"$made/venv.log" 2>&1; then
        quietly pip "$made/uv/bin/python" -m pip install --quiet --disable-pip-version-check "$wanted"
        return
    fi
    rm -rf "$made/uv"
    local -a pip=("$python" -m pip)
    if ! "${pip[@]}" --version >/dev/null 2>&1; then
        quietly pip "$python" scripts/lib/fetch_pip.py "$made/pip.whl"
        pip=("$python" "$made/pip.whl/pip")
    fi
    quietly pip "${pip[@]}" install --quiet --disable-pip-version-check --target "$made/uv" "$wanted"
}

# Both that there are, so that studies can compare them.
virtiofsds() {
    .venv/bin/storlab image virtiofsd && .venv/bin/storlab image virtiofsd --implementation c
}

# Debian's unstable may be broken for a day, which is no fault of ours: then the tests with MySQL are skipped.
unstable_mysql() {
    .venv/bin/storlab image mysql || say "storlab: there is no MySQL: tests that need it are skipped" >&2
}
