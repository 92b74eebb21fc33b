//! The options of TCP's header that say something about what it does.
//!
//! Sources: RFC 9293 (MSS), 7323 (timestamps), 2018 (SACK), 2883 (DSACK).

const STAMPS: [u8; 4] = [1, 1, 8, 10]; // two blanks and timestamps, as nearly every segment of Linux begins its options

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// 0 where it is not said.
    pub mss: u16,
    pub stamped: bool,
    pub sacks: u8,
    pub dsack: bool,
}

impl Options {
    /// Those in `text`, of a segment that acknowledges `acknowledged`. What follows one that is damaged is left out.
    pub fn read(mut text: &[u8], acknowledged: u32) -> Self {
        let mut found = Self::default();
        if text.len() == 12 && text.starts_with(&STAMPS) {
            found.stamped = true;
            return found;
        }
        while let [kind, rest @ ..] = text {
            if *kind == 1 {
                text = rest;
                continue;
            }
            let (0x02.., Some(&length)) = (*kind, rest.first()) else { break };
            let Some(value) = text.get(2..usize::from(length)) else { break };
            match (*kind, value) {
                (2, [high, low, ..]) => found.mss = u16::from_be_bytes([*high, *low]),
                (8, [_, _, _, _, _, _, _, _, ..]) => found.stamped = true,
                (5, [_, _, _, _, _, _, _, _, ..]) => {
                    found.sacks = (value.len() / 8) as u8; // of 38 bytes at most
                    found.dsack = is_duplicate(value, acknowledged);
                }
                _ => {}
            }
            text = &text[usize::from(length)..];
        }
        found
    }
}

/// Whether the first block is below what is acknowledged, or within the second.
fn is_duplicate(blocks: &[u8], acknowledged: u32) -> bool {
    let edge = |at: usize| {
        let octets: Option<&[u8; 4]> = blocks.get(at..).and_then(|rest| rest.first_chunk());
        octets.copied().map(u32::from_be_bytes)
    };
    let reaches = |from: u32, to: u32| to.wrapping_sub(from) < 1 << 31;
    let (Some(left), Some(right)) = (edge(0), edge(4)) else { return false };
    let within = |(outer, end): (u32, u32)| reaches(outer, left) && reaches(right, end);
    reaches(right, acknowledged) || edge(8).zip(edge(12)).is_some_and(within)
}
