#!/bin/bash
# `make test`: installs what tests need; lint, the Rust tests, and the Python tests of this machine and of the tour, whose
# guest image is built meanwhile. TESTS="tests/report -k escape" runs only those Python tests; WORKERS=4 four at once.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/tests.sh

prepare_tests root test vm image
begin_image plain

lint=0
[[ ${TESTS:-} ]] || scripts/lint.sh || lint=$?
await_agent
say "Prepared, with lint: $SECONDS s"

# Beside the Python tests: half of the time they wait.
rust_tests() {
    local status=0
    SECONDS=0
    as_if_fresh env --chdir agent CARGO_BUILD_TARGET="$agent_target" cargo test --locked --quiet || status=$?
    ((status != 0)) || keep_crates || say "storlab: the compiled crates could not be kept for other checkouts"
    say "Rust tests: $SECONDS s, status $status"
    return "$status"
}
rust=0
if [[ ! ${TESTS:-} ]]; then
    rust_tests >"$made/rust-tests.log" 2>&1 </dev/null &
    rust_running=$!
fi
await_image

python=0
run_tests test || python=$?
if [[ ${rust_running:-} ]]; then
    wait "$rust_running" || rust=$?
    ((rust == 0)) || cat "$made/rust-tests.log" >&2
    tail -n 1 "$made/rust-tests.log"
fi
if ((lint != 0 || rust != 0)); then
    say "storlab: lint or the Rust tests failed, see above" >&2
    exit 1
fi
exit "$python"
