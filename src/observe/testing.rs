//! What tests of instances share.

use lmcache_states::Instance;

/// An instance as a short text.
pub fn told(instance: &Instance) -> String {
    let flags = [
        (instance.pod.is_none(), "no pod"),
        (instance.current, "current"),
        (instance.ready, "ready"),
        (instance.was_ready, "was ready"),
        (instance.problem.is_some(), "problem"),
    ];
    let flags: Vec<&str> = flags.into_iter().filter_map(|(holds, text)| holds.then_some(text)).collect();
    format!("{}: {}", instance.location, flags.join(", "))
}
