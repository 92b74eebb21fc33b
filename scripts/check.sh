#!/bin/bash
# `make check`: lint, and the tests that take no root, guest, browser or network, within 90 s. tests/tiers.py says which
# these are. TESTS="tests/report -k escape" runs only those; WORKERS=4 runs four at once. The last line is pytest's summary.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

lint=0
scripts/lint.sh || lint=$?
python_environment dev
build_agent

python=0
read -ra tests <<<"${TESTS:-}"
.venv/bin/pytest --quiet -m "not system" --durations=10 --numprocesses "${WORKERS:-$(nproc)}" "${tests[@]}" || python=$?
if ((lint != 0)); then
    say "storlab: lint found something, see above the tests" >&2
    exit 1
fi
exit "$python"
