#!/bin/bash
# `make clean`: removes what was built or downloaded in the checkout. Runs stay: they are the user's results.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

rm -rf .venv "$made" agent/target .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
