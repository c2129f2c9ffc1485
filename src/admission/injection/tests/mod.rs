//! What the injectors answer, and what they do.

mod answers;
mod conflicts;
mod generators;
mod mutations;
mod patches;
mod properties;
