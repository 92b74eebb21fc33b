#!/bin/bash
# `make check`: lint, and the tests that take no root, guest, browser or network. From a cold cache most of its time goes
# to compiling the agent and to mypy's first run. TESTS="tests/report -k escape" runs only those; WORKERS=4 four at once.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/tests.sh

lint=0
[[ -d $caches/types ]] || say "The first time, checking all types takes a minute or two; building the agent as long."
[[ ${TESTS:-} ]] || scripts/lint.sh || lint=$?
python_environment dev
build_agent

python=0
read -ra tests <<<"${TESTS:-}"
.venv/bin/pytest --tier check --quiet --durations=10 --numprocesses "${WORKERS:-$(nproc)}" "${tests[@]}" || python=$?
if ((lint != 0)); then
    say "storlab: lint found something, see above the tests" >&2
    exit 1
fi
exit "$python"
