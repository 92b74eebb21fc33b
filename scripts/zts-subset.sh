#!/bin/bash
# `make zts-subset`: groups of the ZFS Test Suite by Storlab, and by the suite's own runner, in two guests each; compared.
# TAGS: the groups, with commas, by default the eleven of tests/run/test_originals.py.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

[[ $(id -u) == 0 ]] || fail "the suite's guests have disks that only root may hand over: run \`sudo make zts-subset\`"
need_writable_checkout
need_python
need_packages base vm
install_packages base vm
python_environment dev
build_agent
.venv/bin/storlab image build --with zfs --if-missing
STORLAB_ZTS_GROUPS=${TAGS:-all} exec .venv/bin/pytest --quiet --capture no --numprocesses 0 \
    --timeout 86400 tests/run/test_originals.py -k zfs_test_suite
