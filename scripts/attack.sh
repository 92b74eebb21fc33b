#!/bin/bash
# `make attack`: attacks on Storlab, with new kills and new attempts on devices each time, for ATTACK seconds (by default
# 3600), or until one finds something. What found something says with which STORLAB_TEST_SEED it does so again.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

need_writable_checkout
need_python
need_rust
need_packages base
! can_install || install_packages base root test vm image
python_environment dev
build_agent
.venv/bin/storlab image build --with zfs --if-missing

killed_elsewhere=(
    tests/remote/test_links.py::test_a_controller_that_is_killed_costs_and_doubles_no_trial
    tests/run/test_ssh_nodes.py::test_a_controller_that_is_killed_leaves_nothing_running_and_resumes_with_each_trial_once
)
until=$((SECONDS + ${ATTACK:-3600}))
seed=${STORLAB_TEST_SEED:-$(date +%s)}
begin=$SECONDS
rounds=0
export STORLAB_ATTACKS=${STORLAB_ATTACKS:-100} STORLAB_KILLS=${STORLAB_KILLS:-100}
export STORLAB_SUITE_KILLS=${STORLAB_SUITE_KILLS:-30}
while ((SECONDS < until)); do
    STORLAB_TEST_SEED=$seed .venv/bin/pytest --quiet --maxfail 1 --timeout 3600 --numprocesses "${WORKERS:-$(nproc)}" \
        tests/attacks "${killed_elsewhere[@]}" ||
        fail "found something after $((SECONDS - begin)) s: STORLAB_TEST_SEED=$seed STORLAB_ATTACKS=$STORLAB_ATTACKS" \
            "STORLAB_KILLS=$STORLAB_KILLS STORLAB_SUITE_KILLS=$STORLAB_SUITE_KILLS .venv/bin/pytest tests/attacks ${killed_elsewhere[*]}"
    rounds=$((rounds + 1))
    seed=$((seed + 1))
done
say "$((SECONDS - begin)) s of attacks, $rounds rounds of $STORLAB_ATTACKS each: nothing found"
