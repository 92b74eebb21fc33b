#!/bin/bash
# `make agent`: builds the agent.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh

need_writable_checkout
agent_is_current || need_rust
need_packages base
install_packages base
build_agent
say "$agent: $("$agent" --version)"
