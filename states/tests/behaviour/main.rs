//! The behaviour of the state machine as its users see it: observations in, records out.

mod applying;
mod conditions;
mod deadline;
mod diagram;
mod fixtures;
mod generators;
mod instances;
mod life;
mod properties;
mod replicas;
mod rollout;
