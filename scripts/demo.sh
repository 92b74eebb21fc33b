#!/bin/bash
# `make demo`: installs what is missing, runs a shipped study on this machine, and says where the report lies.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

can_make_loop_devices() { as_root losetup --find >/dev/null 2>&1; }

groups=(base)
[[ $(privileges) == none ]] || groups+=(root)

# First see that everything can be had, so that nothing is left half-done.
need_writable_checkout
need_python
agent_is_current || need_rust
need_packages "${groups[@]}"

install_packages "${groups[@]}"
python_environment demo
build_agent

study=quick
run=(.venv/bin/storlab)
if [[ $(privileges) == none ]]; then
    study=quick-directory
    say "Without root there are no loop devices: this runs the study \`$study\` on a directory." \
        "As root, \`make demo\` compares file systems."
elif ! can_make_loop_devices; then
    study=quick-directory
    say "This machine gives out no loop devices: this runs the study \`$study\` on a directory."
elif [[ $(privileges) == sudo ]]; then
    run=(sudo -n .venv/bin/storlab)
fi

folder=runs/demo-$(date +%Y%m%d-%H%M%S)
mkdir -p runs
say "\$ ${run[*]} run $study --out $folder"
status=0
"${run[@]}" run "$study" --out "$folder" || status=$?
[[ ${run[0]} != sudo ]] || as_root chown -R "$(id -u):$(id -g)" "$folder"
[[ ! -e $folder/report.html ]] || say "Open it: file://$root/$folder/report.html"
exit "$status"
