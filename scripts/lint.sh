#!/bin/bash
# `make lint`: every check runs, quiet where it finds nothing; the status says whether any found something.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/rust.sh
. scripts/lib/python.sh

need_writable_checkout
need_python
need_rust
for component in clippy rustfmt; do
    program=cargo-${component/rustfmt/fmt}
    "$program" --version >/dev/null 2>&1 && continue
    have rustup || fail "$component is not installed: install Rust as https://rustup.rs says, which brings it."
    quietly rustup rustup component add "$component"
done
if can_install; then
    install_packages base lint
fi
take_crates
python_environment dev
mkdir -p "$caches"

# All at once, and what they say in this order.
declare -A checking
check() {
    "${@:2}" >"$made/lint-${1// /-}.log" 2>&1 </dev/null &
    checking[$1]=$!
}

checks=("ruff check" "ruff format" "mypy" "lint-imports" "sentences" "codespell" "cargo fmt" "cargo clippy")
check "ruff check" .venv/bin/ruff check --quiet
check "ruff format" .venv/bin/ruff format --check --quiet
check "mypy" flock "$caches/types.lock" .venv/bin/mypy --no-error-summary --cache-dir "$caches/types"
check "lint-imports" .venv/bin/lint-imports
check "sentences" .venv/bin/python -m tools.sentences
check "codespell" .venv/bin/codespell docs src scripts tools benchmarks examples ./*.md
check "cargo fmt" cargo_agent fmt --check
check "cargo clippy" cargo_agent clippy --locked --quiet --all-targets -- --deny warnings
if have shellcheck; then
    checks+=("shellcheck")
    check "shellcheck" shellcheck --check-sourced scripts/*.sh .ci/run
fi

status=0
for name in "${checks[@]}"; do
    if wait "${checking[$name]}"; then
        say "ok      $name"
    else
        say "FAILED  $name"
        cat "$made/lint-${name// /-}.log"
        status=1
    fi
done
have shellcheck || say "skipped shellcheck: it is not installed; $(by_hand shellcheck)"
exit "$status"
