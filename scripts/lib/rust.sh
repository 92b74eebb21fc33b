# shellcheck shell=bash
# Rust, and the agent that is built with it. Sourced after common.sh.

agent_target=$(uname -m)-unknown-linux-gnu
agent=agent/target/$agent_target/release/storlab-agent

# Fails with one sentence unless there is a Rust that can build the agent.
need_rust() {
    local needed found
    needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' agent/Cargo.toml)
    have cargo || fail "the agent is built with Rust $needed or newer, and cargo is not on PATH:" \
        "install Rust as https://rustup.rs says, then run make again."
    found=$(rustc --version 2>/dev/null | cut -d ' ' -f 2) || found=""
    [[ $found ]] ||
        fail "cargo is there, but \`rustc --version\` fails: run \`rustup default stable\`, then make again."
    printf '%s\n' "$needed" "${found%%-*}" | sort --version-sort --check=quiet ||
        fail "the agent is built with Rust $needed or newer, and rustc here is $found: $(newer_rust)."
}

newer_rust() {
    if have rustup; then
        say "run \`rustup update stable\`, then make again"
    else
        say "install a newer one as https://rustup.rs says, then run make again"
    fi
}

agent_is_current() {
    [[ -x $agent && -z $(find agent/src agent/bpf agent/build.rs agent/Cargo.* agent/.cargo -newer "$agent" -print -quit) ]]
}

build_agent() {
    agent_is_current && return
    [[ -x $agent ]] || say "Building the agent (about a minute the first time)"
    quietly agent cargo_agent build --release --locked
    touch "$agent" # cargo leaves the file alone where a change made no difference
}

# cargo, in agent/, for this machine: the target that is named there is for builds on x86-64.
cargo_agent() { (cd agent && CARGO_BUILD_TARGET=$agent_target cargo "$@"); }
