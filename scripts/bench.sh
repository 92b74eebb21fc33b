#!/bin/bash
# `make bench`: runs benchmarks/. BENCH="--quick" for smaller data, BENCH="read_fio" for one of them.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

need_writable_checkout
need_python
agent_is_current || need_rust
need_packages base
install_packages base
! can_install || install_packages root bench vm image
python_environment bench
build_agent
if [[ $(missing_packages image) ]] || ! .venv/bin/storlab image build --if-missing; then
    say "storlab: there is no guest image: guests won't be started" >&2
fi

read -ra options <<<"${BENCH:-}"
exec .venv/bin/python -m benchmarks "${options[@]}"
