//! The LMCache operator: a custom resource -> observe, render, apply, advance, publish.

pub mod admission;
pub mod apply;
pub mod cli;
pub mod controllers;
pub mod key;
pub mod observe;
pub mod publish;
pub mod render;
pub mod serving;
pub mod startup;
