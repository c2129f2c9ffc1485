//! The two injectors, as a table of names and of the few rules in which they differ.

use std::fmt;

/// Annotation with the side that a pod takes in disaggregated prefill and decode: `prefiller` or `decoder`.
pub const PD_ROLE: &str = "lmcache.ai/pd-role";
/// Annotation with the [`super::config_hash`] of the document that a pod was injected with (D80).
pub const CONFIG_HASH: &str = "lmcache.ai/injected-config-hash";

/// Which kind of engine a pod is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Injector {
    /// Connects to a `CacheBlendEngine`. It runs first where a pod wants both.
    CacheBlend,
    /// Connects to an `LMCacheEngine`.
    LmCache,
}

/// How things of an injector are called in a pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    /// Kind of the engine.
    pub kind: &'static str,
    /// Label by which the API server selects pods for this injector.
    pub label: &'static str,
    /// Annotation with the engine: `<name>` or `<namespace>/<name>`.
    pub engine: &'static str,
    /// Annotation with the name of the container that runs vLLM.
    pub container: &'static str,
    /// Annotation with a comma list of pull secrets, instead of the engine's.
    pub pull_secrets: &'static str,
    /// Annotation that says `true` on an injected pod.
    pub injected: &'static str,
    /// Annotation with the reason for what was not done.
    pub skip_reason: &'static str,
    /// Volume that the payload is staged in.
    pub payload_volume: &'static str,
    /// Init container that stages the payload.
    pub payload_stage: &'static str,
    /// Where the payload volume is mounted.
    pub payload_path: &'static str,
}

/// What one injector does and the other does not.
#[derive(Debug)]
pub(super) struct Rules {
    /// Without a payload image vLLM cannot be connected.
    pub needs_payload: bool,
    /// A decoder gets the connection and nothing else.
    pub bare_decoder: bool,
    /// vLLM needs further flags.
    pub flags: bool,
    /// Where `PYTHONHASHSEED` stands among the variables that are added (D61).
    pub hash_seed: Place,
}

/// A place in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    First,
    Last,
}

static CACHE_BLEND: (Names, Rules) = (
    Names {
        kind: "CacheBlendEngine",
        label: "lmcache.ai/cacheblend-inject",
        engine: "lmcache.ai/cacheblend-engine",
        container: "lmcache.ai/cacheblend-container",
        pull_secrets: "lmcache.ai/cacheblend-image-pull-secrets",
        injected: "lmcache.ai/cacheblend-injected",
        skip_reason: "lmcache.ai/cacheblend-skip-reason",
        payload_volume: "cb-plugin",
        payload_stage: "cb-plugin-stage",
        payload_path: "/cb-plugin",
    },
    Rules { needs_payload: true, bare_decoder: true, flags: true, hash_seed: Place::Last },
);

static LM_CACHE: (Names, Rules) = (
    Names {
        kind: "LMCacheEngine",
        label: "lmcache.ai/lmcache-inject",
        engine: "lmcache.ai/lmcache-engine",
        container: "lmcache.ai/lmcache-container",
        pull_secrets: "lmcache.ai/lmcache-image-pull-secrets",
        injected: "lmcache.ai/lmcache-injected",
        skip_reason: "lmcache.ai/lmcache-skip-reason",
        payload_volume: "lmcache-payload",
        payload_stage: "lmcache-payload-stage",
        payload_path: "/lmcache-payload",
    },
    Rules { needs_payload: false, bare_decoder: false, flags: false, hash_seed: Place::First },
);

impl Injector {
    /// Both, in the order in which they run on one pod.
    pub const ALL: [Injector; 2] = [Injector::CacheBlend, Injector::LmCache];

    /// The name as metrics and logs show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Injector::CacheBlend => "cacheblend",
            Injector::LmCache => "lmcache",
        }
    }

    /// How its things are called in a pod.
    pub fn names(self) -> &'static Names {
        &self.table().0
    }

    pub(super) fn rules(self) -> &'static Rules {
        &self.table().1
    }

    fn table(self) -> &'static (Names, Rules) {
        match self {
            Injector::CacheBlend => &CACHE_BLEND,
            Injector::LmCache => &LM_CACHE,
        }
    }
}

impl fmt::Display for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
