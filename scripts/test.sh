#!/bin/bash
# `make test`: installs what tests need and runs all, Rust first. The last line is pytest's summary.
# TESTS="tests/report -k escape" runs only those Python tests; WORKERS=4 runs four at once.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

# Up to so many failed tests run a second time, one after another with nothing beside them. These are real programs,
# guests and networks under a load that varies: one that fails only beside others is named, and is no reason to fail;
# one that fails twice is. More than so many failures are no accident.
most_again=8

fail_again_alone() {
    local failed=()
    mapfile -t failed < <(.venv/bin/python -c 'import json; print(*json.load(open(".pytest_cache/v/cache/lastfailed")), sep="\n")')
    if ((${#failed[@]} == 0 || ${#failed[@]} > most_again)); then
        return 1
    fi
    say "Failed beside others, and now alone:"
    as_if_fresh .venv/bin/pytest --numprocesses 0 "${failed[@]}" || return 1
    say "These failed beside others and passed alone. Each is worth a look: ${failed[*]}"
}

need_writable_checkout
need_python
need_rust
need_packages base

if can_install; then
    install_packages base root test vm image
else
    mapfile -t missing < <(missing_packages root test vm image)
    ((${#missing[@]} == 0)) ||
        say "Some tests will be skipped, because these are not installed: ${missing[*]}; $(by_hand "${missing[@]}")."
fi
python_environment dev
# Where PYTHONDONTWRITEBYTECODE is set, each of the hundreds of controllers would compile all modules again.
.venv/bin/python -m compileall -q src
build_agent
begin=$SECONDS
image=0
if [[ $(missing_packages image) ]] || ! .venv/bin/storlab image build --with zfs --if-missing || ! virtiofsds; then
    say "storlab: there is no guest image, or no virtiofsd: tests that need them are skipped" >&2
    image=1
fi
unstable_mysql
say "Guest image: $((SECONDS - begin)) s"
say "Prepared: $SECONDS s"

begin=$SECONDS
rust=0
as_if_fresh env --chdir agent CARGO_BUILD_TARGET="$agent_target" cargo test --locked --quiet || rust=$?
say "Rust tests: $((SECONDS - begin)) s, $( ((rust)) && echo "failed with status $rust" || echo passed)"

python=0
read -ra tests <<<"${TESTS:-}"
# Twice as many as there are CPUs: for half of their time tests wait, for guests, disks and time-outs.
as_if_fresh .venv/bin/pytest --cache-clear --durations=10 --numprocesses "${WORKERS:-$(($(nproc) * 2))}" "${tests[@]}" || python=$?
if ((python == 1)); then
    fail_again_alone "${tests[@]}" && python=0
fi

if ((rust != 0)); then
    say "storlab: the Rust tests failed, see above the Python tests" >&2
    exit 1
fi
# Skipped tests would look like passed ones, where nothing but a failed build is the reason.
if ((image != 0)) && can_install; then
    say "storlab: the guest image could not be built, or virtiofsd not unpacked, see above the tests" >&2
    exit 1
fi
exit "$python"
