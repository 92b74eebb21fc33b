#!/bin/bash
# `make fuzz`: every test that makes up its input, with FUZZ times as many examples as in `make test` (by default 20), new
# ones each time. What fails is kept in .hypothesis/ and tried first from then on. TESTS and WORKERS as in `make test`.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

need_writable_checkout
need_python
need_rust
need_packages base
! can_install || install_packages base root test
python_environment dev
build_agent

export STORLAB_FUZZ=${FUZZ:-20}
export POLARS_MAX_THREADS=1 # there are as many tests at once as CPUs
rust=0
PROPTEST_CASES=$((256 * STORLAB_FUZZ)) cargo_agent test --locked --quiet --lib --bins --test decoder --test mutations || rust=$?
say "Rust: $( ((rust)) && echo "failed with status $rust" || echo passed)"

python=0
read -ra tests <<<"${TESTS:-}"
.venv/bin/pytest -m fuzz --timeout 7200 --durations=10 --numprocesses "${WORKERS:-$(nproc)}" "${tests[@]}" || python=$?
exit $((rust || python))
