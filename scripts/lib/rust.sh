# shellcheck shell=bash
# Rust, and the agent that is built with it. Sourced after common.sh.

agent_target=$(uname -m)-unknown-linux-gnu
agent=agent/target/$agent_target/release/storlab-agent

# What was compiled once serves every checkout: agents by all that they are made of, and the crates of one lock file.
compiled=$caches/rust

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
    local saved
    saved=$compiled/agent-$(agent_key)
    if [[ -x $saved ]]; then
        mkdir -p "${agent%/*}"
        cp "$saved" "$agent.new"
        mv "$agent.new" "$agent"
        return
    fi
    [[ -x $agent ]] || say "Building the agent (about a minute the first time)"
    quietly agent cargo_agent build --release --locked
    touch "$agent" # cargo leaves the file alone where a change made no difference
    save_agent "$saved" 2>/dev/null || rm -f "$saved.new.$$"
}

# What is not here, as dpkg on another distribution, tells nothing.
agent_key() {
    {
        set +e
        find agent/src agent/bpf agent/build.rs agent/Cargo.* agent/.cargo -type f -print0 | sort -z | xargs -0 sha256sum
        rustc -vV
        for name in "${CLANG:-clang}" clang-{14..20}; do "$name" --version; done
        dpkg-query --show 'clang*' libbpf-dev linux-libc-dev
        env | grep -E '^(CLANG|RUSTFLAGS|CARGO_(BUILD|PROFILE|TARGET)_.*)=' | sort
        true
    } 2>/dev/null | sha256sum | cut -c -32
}

# save_agent FILE: whole or not at all, beside the seven last ones.
save_agent() {
    mkdir -p "$compiled" && cp "$agent" "$1.new.$$" && mv "$1.new.$$" "$1" || return
    find "$compiled" -name 'agent-*' -printf '%T@ %p\n' | sort -rn | tail -n +9 | cut -d ' ' -f 2- | xargs -rd '\n' rm --
}

crates_key() {
    { sha256sum agent/Cargo.* && rustc -vV && cat agent/.cargo/*; } | sha256sum | cut -c -32
}

# The crates that another checkout has compiled, into one that has compiled nothing but its agent.
take_crates() {
    local crates
    crates=$compiled/crates-$(crates_key)
    [[ -d $crates && ! -e agent/target/$agent_target/debug ]] || return 0
    rm -rf "$made/crates"
    cp -a "$crates" "$made/crates" 2>/dev/null || return 0 # another checkout has just replaced them
    if [[ -x $agent ]]; then
        mkdir -p "$made/crates/$agent_target/release"
        mv "$agent" "$made/crates/$agent_target/release/"
    fi
    rm -rf agent/target
    mv "$made/crates" agent/target
}

# Without what is Storlab's own: of that cargo believes whatever is newer than its sources, also of other sources.
# Whole or not at all: where one step fails, as on a full disk, nothing is kept.
keep_crates() {
    local crates new
    crates=$compiled/crates-$(crates_key)
    [[ ! -d $crates ]] || return 0
    mkdir -p "$compiled" && new=$(mktemp -d "$compiled/new-XXXXXX") || return
    if cp -a agent/target/. "$new" && forget_own "$new" && rm -rf "$new"/{,*/}*/incremental "$compiled"/crates-*; then
        mv --no-target-directory "$new" "$crates"
    else
        rm -rf "$new"
        return 1
    fi
}

forget_own() {
    local profile options=(--quiet --package storlab-agent --target-dir "$1")
    for profile in dev release; do
        (cd agent && cargo clean "${options[@]}" --profile "$profile" --target "$agent_target" &&
            cargo clean "${options[@]}" --profile "$profile") || return
    done
}

# cargo, in agent/, for this machine: the target that is named there is for builds on x86-64.
cargo_agent() { (cd agent && CARGO_BUILD_TARGET=$agent_target cargo "$@"); }
