//! Whether the node is a virtual machine, and of which kind.
//!
//! Source of the vendors' names: `systemd-detect-virt(1)`, whose words are used (`kvm`, `vmware`). The hypervisor's
//! flag of x86 tells that there is one, not which.

use std::fs;

/// What the vendor's string in the firmware's tables begins with, and what that means.
const VENDORS: [(&str, &str); 12] = [
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Google Compute Engine", "google"),
];

/// `None` where it is hardware, as far as one can tell.
pub fn detect(cpuinfo: &str) -> Option<String> {
    let dmi = |name: &str| fs::read_to_string(format!("/sys/class/dmi/id/{name}")).unwrap_or_default();
    let strings = ["product_name", "sys_vendor", "board_vendor", "bios_vendor"].map(dmi);
    let xen = fs::read_to_string("/sys/hypervisor/type").unwrap_or_default();
    judge(&strings, xen.trim(), cpuinfo).map(Into::into)
}

fn judge(dmi: &[String; 4], hypervisor: &str, cpuinfo: &str) -> Option<&'static str> {
    if hypervisor == "xen" {
        return Some("xen");
    }
    let known =
        |text: &String| VENDORS.iter().find(|(prefix, _)| text.starts_with(prefix)).map(|&(_, kind)| kind);
    if let Some(kind) = dmi.iter().find_map(known) {
        return Some(kind);
    }
    let has_flag = cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
    let [product, vendor, ..] = dmi;
    match vendor.trim() {
        "Microsoft Corporation" if product.starts_with("Virtual Machine") => Some("microsoft"),
        // These sell bare metal under the same names.
        "Amazon EC2" if has_flag => Some("amazon"),
        "Google" if has_flag => Some("google"),
        _ => has_flag.then_some("unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dmi(product: &str, vendor: &str) -> [String; 4] {
        [product.into(), vendor.into(), String::new(), String::new()]
    }

    #[test]
    fn the_firmware_names_the_hypervisor() {
        assert_eq!(judge(&dmi("Standard PC (Q35 + ICH9, 2009)", "QEMU"), "", ""), Some("qemu"));
        assert_eq!(judge(&dmi("Virtual Machine\n", "Microsoft Corporation\n"), "", ""), Some("microsoft"));
    }

    #[test]
    fn the_flag_alone_tells_that_there_is_one() {
        assert_eq!(judge(&dmi("", ""), "", "flags\t\t: fpu vme hypervisor lahf_lm\n"), Some("unknown"));
    }

    #[test]
    fn a_vendors_laptop_is_hardware() {
        assert_eq!(judge(&dmi("Surface", "Microsoft Corporation"), "", "flags : fpu vme\n"), None);
    }
}
