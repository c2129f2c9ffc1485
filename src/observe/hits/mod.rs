//! Hit tokens: what the cache servers say of their hits, summed over each engine.

mod ledger;
mod scrape;
mod text;

pub use ledger::Ledger;
pub use scrape::{ScrapeError, scrape};
pub use text::{Reader, Tokens};
