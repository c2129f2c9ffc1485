//! Admission: what happens to objects on their way into the cluster.

pub mod certificates;
mod engines;
pub mod injection;
mod injector;
mod notes;
pub mod registration;
pub mod review;
pub mod validating;

pub use engines::{Engines, LookupError};
pub use injector::Injection;
pub use notes::{Notes, Writer};
