#!/bin/bash
# `make costs`: runs every test and writes down what each costs, in tests/tiers/costs.json, from which follow its tier and
# its turn. On a machine that does little else.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/tests.sh

prepare_tests root test vm image queue
begin_image zfs
await_agent
await_image
run_tests all --record-costs tests/tiers/costs.json
