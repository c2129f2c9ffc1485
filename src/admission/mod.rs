//! Admission: what happens to objects on their way into the cluster.

mod engines;
pub mod injection;

pub use engines::{Engines, LookupError};
