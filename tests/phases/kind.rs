//! The engine kinds: every behaviour is shown for each of them.

use std::path::PathBuf;

use lmcache_crds::{EngineStatus, LMCacheEngine};
use lmcache_harness::PhaseObject;

use crate::common::project;

/// What the scenarios need to know about an engine kind.
pub trait EngineKind: PhaseObject {
    /// The fixture of this name: an engine called [`NAME`](crate::scene::NAME), and whatever it needs.
    fn fixture(name: &str) -> PathBuf;

    /// The whole status.
    fn engine_status(&self) -> EngineStatus;
}

impl EngineKind for LMCacheEngine {
    fn fixture(name: &str) -> PathBuf {
        project().join(format!("tests/fixtures/engines/{name}.yaml"))
    }

    fn engine_status(&self) -> EngineStatus {
        self.status.clone().unwrap_or_default()
    }
}

/// Makes tests of scenarios, one module for each kind. A scenario is an `async fn name<K: EngineKind>(..) -> Result<()>`;
/// `test => scenario(arguments)` gives the test a name of its own.
macro_rules! every_kind {
    ($($tests:tt)*) => {
        // The table of kinds: one line each.
        mod lmcache_engine { kind_tests! { lmcache_crds::LMCacheEngine; $($tests)* } }
    };
}

macro_rules! kind_tests {
    ($kind:ty; $($test:ident => $scenario:ident($($argument:expr),*)),+ $(,)?) => {
        #[allow(unused_imports, reason = "arguments may name what stands beside the scenario")]
        use super::*;

        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() -> anyhow::Result<()> {
                super::$scenario::<$kind>($($argument),*).await
            }
        )+
    };
    ($kind:ty; $($scenario:ident),+ $(,)?) => {
        kind_tests! { $kind; $($scenario => $scenario()),+ }
    };
}
