#!/bin/bash
# `make test`: installs what tests need; lint, the Rust tests, and the Python tests of this machine and of the tour, whose
# guest image is built meanwhile. TESTS="tests/report -k escape" runs only those Python tests; WORKERS=4 four at once.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/tests.sh

prepare_tests root test vm image
say "Prepared: $SECONDS s"
begin_image plain

lint=0
[[ ${TESTS:-} ]] || scripts/lint.sh || lint=$?
begin=$SECONDS
rust=0
[[ ${TESTS:-} ]] || as_if_fresh env --chdir agent CARGO_BUILD_TARGET="$agent_target" cargo test --locked --quiet || rust=$?
say "Rust tests: $((SECONDS - begin)) s, $( ((rust)) && echo "failed with status $rust" || echo passed)"
await_image

python=0
run_tests test || python=$?
if ((lint != 0 || rust != 0)); then
    say "storlab: lint or the Rust tests failed, see above the Python tests" >&2
    exit 1
fi
exit "$python"
