//! Admission: what happens to objects on their way into the cluster.

pub mod certificates;
mod engines;
pub mod injection;
pub mod registration;
pub mod review;
pub mod validating;

pub use engines::{Engines, LookupError};
