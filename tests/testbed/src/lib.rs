//! A real Kubernetes control plane on loopback, with simulated nodes (KWOK), for tests, demos and benchmarks.
//!
//! [`Cluster`] belongs to the process that starts it and dies with it. [`detached`] gives a person the same cluster
//! as background processes. The binaries are built once by `build.sh`, or taken from `KUBEBUILDER_ASSETS`.
//!
//! How pods behave is steered pod by pod with the annotations in [`annotation`], set on the pod template (users'
//! `podAnnotations` arrive there) or later on a live pod with [`Cluster::annotate_pod`].
#![deny(missing_docs)]

pub mod annotation;
mod binaries;
mod cluster;
mod components;
pub mod detached;
mod files;
pub mod jaeger;
mod kubeconfig;
mod memory;
mod objects;
mod pki;
mod ports;
mod process;
mod program;

pub use cluster::{Cluster, ClusterOptions};
pub use memory::ComponentMemory;
pub use program::Program;
