//! Compiles the eBPF programs with clang, for any kernel (CO-RE). They become part of the agent.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 7] = ["block", "block_tracepoint", "tcp", "acks", "locks", "profile", "folios"];
const CLANG: [&str; 8] =
    ["clang", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14"];

fn main() {
    let sources = PathBuf::from("bpf");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = clang();
    for program in PROGRAMS {
        let object =
            PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(format!("{program}.o"));
        compile(&clang, &sources.join(format!("{program}.bpf.c")), &object);
    }
}

fn clang() -> String {
    if let Ok(chosen) = env::var("CLANG") {
        return chosen;
    }
    let found = CLANG.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    found.map_or_else(
        || fail("clang is needed to compile the eBPF programs: apt-get install clang libbpf-dev"),
        str::to_owned,
    )
}

fn compile(clang: &str, source: &Path, object: &Path) {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let name = if architecture == "aarch64" { "arm64" } else { "x86" };
    let compiled = Command::new(clang)
        .args([
            "-O2",
            "-g",
            "-target",
            "bpf",
            "-mcpu=v3",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Werror",
        ])
        // Of the same sources comes the same agent, wherever they lie, so guests that have it can be shared.
        .arg(format!(
            "-ffile-prefix-map={}=.",
            env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")
        ))
        .arg(format!("-D__TARGET_ARCH_{name}"))
        .arg(format!("-I/usr/include/{architecture}-linux-gnu")) // Debian's place of asm/types.h
        // Its place in a build for another architecture: what both say of the types of eBPF programs is the same.
        .arg("-idirafter")
        .arg(format!("/usr/include/{}-linux-gnu", env::consts::ARCH))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .output()
        .unwrap_or_else(|error| fail(&format!("{clang} can't be run: {error}")));
    if !compiled.status.success() {
        let said = String::from_utf8_lossy(&compiled.stderr);
        let missing = said.contains("bpf/bpf_helpers.h");
        let hint =
            if missing { "\nbpf/bpf_helpers.h comes with libbpf: apt-get install libbpf-dev" } else { "" };
        fail(&format!("{} can't be compiled:\n{said}{hint}", source.display()));
    }
}

fn fail(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(1)
}
