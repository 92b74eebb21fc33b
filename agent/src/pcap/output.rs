//! The document.

use serde::Serialize;

use super::container::Notes;
use super::frames::Frames;
use super::streams::Connection;

#[derive(Debug, Default, Serialize)]
pub struct Document {
    #[serde(flatten)]
    pub frames: Frames,
    #[serde(flatten)]
    pub notes: Notes,
    /// Within its last packet.
    pub cut_off: bool,
    /// Segments of too many connections.
    pub left_out: u64,
    pub connections: Vec<Connection>,
}
