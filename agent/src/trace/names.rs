//! The names of operations, flags and other counters, for the numbers that `bpf/subject.h` and `bpf/counters.h` give them.

/// Operations by number; a number that has none is `other`.
const OPERATIONS: [(u32, &str); 15] = [
    (0, "read"),
    (1, "write"),
    (2, "flush"),
    (3, "discard"),
    (5, "secure_erase"),
    (8, "other"),
    (9, "write_zeroes"),
    (16, "zone_append"),
    (17, "zone_open"),
    (18, "zone_close"),
    (19, "zone_finish"),
    (20, "zone_reset"),
    (21, "zone_reset_all"),
    (22, "drv_in"),
    (23, "drv_out"),
];

/// Flags, the lowest bit first.
const FLAGS: [&str; 9] =
    ["preflush", "fua", "sync", "meta", "prio", "readahead", "background", "atomic", "swap"];

const OTHERS: [&str; 6] = ["back_merge", "front_merge", "request_merge", "split", "requeue", "error"];

pub fn operation(number: u32) -> &'static str {
    OPERATIONS.iter().find(|(known, _)| *known == number).map_or("other", |(_, name)| name)
}

/// The number of an operation that a user named.
pub fn operation_number(name: &str) -> Option<u32> {
    OPERATIONS.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}

pub fn operations() -> String {
    OPERATIONS.map(|(_, name)| name).join(", ")
}

/// Flags joined by `+`; empty for none.
pub fn flags(bits: u32) -> String {
    let set: Vec<_> =
        FLAGS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name).collect();
    set.join("+")
}

pub fn other(number: u64) -> &'static str {
    usize::try_from(number).ok().and_then(|index| OTHERS.get(index)).copied().unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_joined_in_one_order() {
        assert_eq!(flags(0), "");
        assert_eq!(flags(0b1100), "sync+meta");
        assert_eq!(flags(1 | 1 << 8), "preflush+swap");
    }

    #[test]
    fn every_operation_is_found_by_its_name() {
        for (number, name) in OPERATIONS {
            assert_eq!((operation(number), operation_number(name)), (name, Some(number)));
        }
        assert_eq!((operation(30), operation_number("writes")), ("other", None));
    }
}
