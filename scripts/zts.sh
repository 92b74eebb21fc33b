#!/bin/bash
# `make zts-sanity`: sanity.run of the ZFS Test Suite, whole, in guests.
# GUESTS: how many at once, by default 2; OUT: the folder of the run.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

[[ $(id -u) == 0 ]] || fail "the suite's guests have disks that only root may hand over: run \`sudo make zts-sanity\`"
need_writable_checkout
need_python
need_packages base vm
install_packages base vm
python_environment demo
build_agent
.venv/bin/storlab image build --with zfs --if-missing
exec .venv/bin/storlab suite run zts-sanity --guests "${GUESTS:-2}" ${OUT:+--out "$OUT"}
