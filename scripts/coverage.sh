#!/bin/bash
# `make coverage`: runs every test and says which part of each package's lines and branches they reach, also in the
# controllers that they start. The figures stay in .make/coverage.json; THAN=FILE compares with an earlier such file.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/tests.sh

prepare_tests root test vm image
begin_image zfs
await_agent
await_image

data=$root/$made/coverage
export COVERAGE_RCFILE=$root/scripts/lib/coverage.ini COVERAGE_FILE=$data/data
rm -rf "$data"
mkdir -p "$data"
status=0
read -ra tests <<<"${TESTS:-}"
as_if_fresh .venv/bin/coverage run -m pytest --timeout 3000 --numprocesses "${WORKERS:-$(($(nproc) * 2))}" "${tests[@]}" || status=$?
.venv/bin/coverage combine --quiet
.venv/bin/python -m tools.coverage_by_package "$COVERAGE_FILE" "$made/coverage.json" ${THAN:+"$THAN"} || status=$?
exit "$status"
