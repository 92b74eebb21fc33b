//! Counters of the whole network namespace, and of disks: small files of `/proc` and `/sys`, as numbers.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Counters of `/proc/net/netstat` and `/proc/net/snmp`, by the names that they have there; see `snmp_counter.rst` of the
/// kernel's documentation.
pub const NAMES: [&str; 14] = [
    "DelayedACKs",
    "DelayedACKLost",
    "TCPDSACKOldSent",
    "TCPDSACKOfoSent",
    "TCPDSACKRecv",
    "TCPSackRecovery",
    "TCPSACKReorder",
    "TCPLostRetransmit",
    "TCPFastRetrans",
    "TCPTimeouts",
    "TCPLossProbes",
    "TCPAutoCorking",
    "OutSegs",
    "RetransSegs",
];

/// Those of `NAMES`; one that this kernel lacks is null.
pub type Counters = [Option<u64>; NAMES.len()];

const FILES: [(&str, &str); 2] = [("/proc/net/netstat", "TcpExt:"), ("/proc/net/snmp", "Tcp:")];
/// Of the longer one there are some 4 KiB.
const BUFFER: usize = 32 << 10;

/// The files, open: of what a look at them takes, most is opening them.
pub struct Files {
    open: Vec<(File, &'static str)>,
    buffer: Vec<u8>,
}

impl Files {
    pub fn open() -> Self {
        let open = FILES.into_iter().filter_map(|(path, protocol)| Some((File::open(path).ok()?, protocol)));
        Self { open: open.collect(), buffer: vec![0; BUFFER] }
    }

    pub fn read(&mut self) -> Counters {
        let mut found = [None; NAMES.len()];
        for (file, protocol) in &self.open {
            let length = fill(file, &mut self.buffer);
            parse(&String::from_utf8_lossy(&self.buffer[..length]), protocol, &mut found);
        }
        found
    }
}

/// Reads a file from its beginning, as far as there is room.
fn fill(file: &File, buffer: &mut [u8]) -> usize {
    let mut length = 0;
    while let Ok(more @ 1..) = file.read_at(&mut buffer[length..], length as u64) {
        length += more;
    }
    length
}

/// A line of names and a line of numbers, both of which begin with the protocol's.
fn parse(text: &str, protocol: &str, found: &mut Counters) {
    let mut lines = text.lines().filter(|line| line.split(' ').next() == Some(protocol));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return };
    for (name, number) in names.split(' ').zip(numbers.split(' ')) {
        if let Some(place) = NAMES.iter().position(|known| *known == name) {
            found[place] = number.parse().ok();
        }
    }
}

/// What a disk has done: reads, writes, and bytes of each.
pub type Disk = [u64; 4];

/// From `/sys/class/block/NAME/stat`, see the kernel's `block/stat.rst`; none where it isn't there, or not any more.
pub fn disk(sys: &Path, name: &str) -> Option<Disk> {
    parse_disk(&fs::read_to_string(sys.join("class/block").join(name).join("stat")).ok()?)
}

fn parse_disk(text: &str) -> Option<Disk> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let &[reads, _, sectors_read, _, writes, _, sectors_written, ..] = fields.as_slice() else { return None };
    Some([reads, writes, sectors_read.saturating_mul(512), sectors_written.saturating_mul(512)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name_wherever_it_stands() {
        let mut found = [None; NAMES.len()];
        parse(
            "TcpExt: A DelayedACKs B\nTcpExt: 1 22 3\nIpExt: DelayedACKs\nIpExt: 9\n",
            "TcpExt:",
            &mut found,
        );
        assert_eq!((found[0], found[1]), (Some(22), None));
        parse("TcpExt: DelayedACKs\n", "TcpExt:", &mut found);
        parse("", "Tcp:", &mut found);
        assert_eq!(found[0], Some(22));
    }

    #[test]
    fn this_kernel_has_them_all() {
        let missing: Vec<_> = Files::open()
            .read()
            .iter()
            .zip(NAMES)
            .filter(|(found, _)| found.is_none())
            .map(|(_, name)| name)
            .collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn a_disks_requests_and_bytes_are_told() {
        let text = "      12        3     4096       10       24        5     8192       20        0       30       30";
        assert_eq!(parse_disk(text), Some([12, 24, 4096 * 512, 8192 * 512]));
        assert_eq!(parse_disk("1 2 3"), None);
    }
}
