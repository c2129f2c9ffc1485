//! Hit tokens: what the cache servers say of their hits, summed over each engine.

mod ledger;
mod text;

pub use ledger::Ledger;
pub use text::{Reader, Tokens};
