//! The kernel's types.

use std::path::Path;

use aya::{Btf, BtfError, Endianness};

/// Where the kernel shows them.
pub const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// Why they can't be had.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's types ({KERNEL}) can't be read: {0}")]
pub struct NoTypes(#[from] BtfError);

/// Reads them.
pub fn of_kernel(path: &Path) -> Result<Btf, NoTypes> {
    Ok(Btf::parse_file(path, Endianness::default())?)
}
