#!/bin/bash
# `make test-guests`: the second tier: guests beyond the tour, the image with ZFS, packages, the browser, power cuts, suites.
# TESTS and WORKERS as in `make test`.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/tests.sh

prepare_tests root test vm image queue
begin_image zfs
await_agent
await_image
say "Prepared: $SECONDS s"
run_tests guests
