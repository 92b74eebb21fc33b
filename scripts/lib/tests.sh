# shellcheck shell=bash
# What the commands that run tests share. Sourced after common.sh.

. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

# Where it is set, each worker would rewrite all assertions again, and each controller compile all modules.
unset PYTHONDONTWRITEBYTECODE

second_tries=tests/tiers/second-tries.txt # of CI's last runs: a test, a tab, the reason
most_again=8                              # failed tests; more are no accident
image=none
image_built=""
agent_building=""

# prepare_tests GROUP…: what tests need of Debian's packages but for `base`, the Python environment, and the agent, which
# is built in the background: half of that time goes to one CPU only.
prepare_tests() {
    need_writable_checkout
    need_python
    need_rust
    need_packages base
    if can_install; then
        install_packages base "$@"
    else
        local -a missing
        mapfile -t missing < <(missing_packages "$@")
        ((${#missing[@]} == 0)) ||
            say "Some tests will be skipped, because these are not installed: ${missing[*]}; $(by_hand "${missing[@]}")."
    fi
    take_crates
    build_agent &
    agent_building=$!
    python_environment dev
    .venv/bin/python -m compileall -q src tests
}

# Fails where the agent could not be built.
await_agent() { wait "$agent_building"; }

# begin_image plain|zfs: builds the guest image in the background, and unpacks what is used beside it.
begin_image() {
    local -a options=()
    [[ $1 == plain ]] || options=(--with "$1")
    if [[ $(missing_packages image) ]]; then
        return
    fi
    (
        begin=$SECONDS
        unstable_mysql
        virtiofsds && .venv/bin/storlab image build "${options[@]}" --if-missing || exit 1
        say "Guest image: $((SECONDS - begin)) s"
    ) >"$made/image.log" 2>&1 </dev/null &
    image=$!
}

# Waits for the image. Where there is none the tests that need it are skipped, or fail in CI.
await_image() {
    [[ $image != none ]] && wait "$image" && image_built=yes && tail -n 1 "$made/image.log" && return
    [[ ! -e $made/image.log ]] || cat "$made/image.log" >&2
    say "storlab: there is no guest image, or no virtiofsd: tests that need them are skipped" >&2
}

# run_tests TIER [OPTION…]: the Python tests of a tier. Twice as many at once as there are CPUs: for half of their time
# tests wait, for guests, disks and time-outs. One that fails gets a second try alone, which is reported. TESTS: those
# tests instead, of whichever tier.
run_tests() {
    local tier=$1 status=0 begin=$SECONDS
    shift
    local -a tests
    read -ra tests <<<"${TESTS:-}"
    ((${#tests[@]} == 0)) || tier=all
    as_if_fresh .venv/bin/pytest --tier "$tier" --cache-clear --durations=10 \
        --numprocesses "${WORKERS:-$(($(nproc) * 2))}" "$@" "${tests[@]}" || status=$?
    if ((status == 1)); then
        once_more_alone && status=0
    fi
    # Skipped tests would look like passed ones, where nothing but a failed build is the reason.
    if ((status == 0)) && [[ ! $image_built ]] && can_install; then
        say "storlab: the guest image could not be built, or virtiofsd not unpacked, see above the tests" >&2
        status=1
    fi
    say "Python tests of tier $tier: $((SECONDS - begin)) s"
    return "$status"
}

# A test that fails only beside others is reported, and is no reason to fail unless it has been so before.
once_more_alone() {
    local -a failed=() again=()
    local test
    mapfile -t failed < <(.venv/bin/python -c 'import json; print(*json.load(open(".pytest_cache/v/cache/lastfailed")), sep="\n")')
    if ((${#failed[@]} == 0 || ${#failed[@]} > most_again)); then
        return 1
    fi
    say "Failed beside others, and now alone:"
    as_if_fresh .venv/bin/pytest --numprocesses 0 "${failed[@]}" || return 1
    for test in "${failed[@]}"; do
        say "Failed beside others, passed alone: $test"
        ! cut -f 1 "$second_tries" | grep -qxF -- "$test" || again+=("$test")
    done
    ((${#again[@]} == 0)) || {
        say "storlab: for the second time, by $second_tries: ${again[*]}" >&2
        return 1
    }
}
