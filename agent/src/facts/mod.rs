//! `facts`: what the node is, and which tools it has.

mod system;
mod tools;
mod virtualization;

pub use system::{gather, hostname};
pub use tools::{FactsRequest, first_line};
