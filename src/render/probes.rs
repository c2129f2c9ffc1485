//! Probes of the engine container.

use k8s_openapi::api::core::v1::{HTTPGetAction, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lmcache_crds::{EngineSpec, ReadinessProbe, STARTUP_PROBE_SECONDS};

use super::names;

/// Gives a large first level the time to pin its memory: only the number of attempts grows.
pub fn startup(spec: &EngineSpec) -> Probe {
    Probe {
        initial_delay_seconds: Some(STARTUP_PROBE_SECONDS),
        period_seconds: Some(STARTUP_PROBE_SECONDS),
        failure_threshold: Some(spec.startup_failure_threshold()),
        ..server_port(spec)
    }
}

/// Restarts a server whose port is gone.
pub fn liveness(spec: &EngineSpec) -> Probe {
    Probe { period_seconds: Some(10), ..server_port(spec) }
}

/// Takes a server out of the Services: by its port, or by what it says of its health (D82).
pub fn readiness(spec: &EngineSpec) -> Probe {
    let asked = match spec.readiness_probe() {
        ReadinessProbe::Tcp => server_port(spec),
        ReadinessProbe::Http => Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/healthcheck".to_owned()),
                port: IntOrString::String(names::HTTP_PORT.to_owned()),
                ..HTTPGetAction::default()
            }),
            ..Probe::default()
        },
    };
    Probe { period_seconds: Some(5), ..asked }
}

fn server_port(spec: &EngineSpec) -> Probe {
    let socket = TCPSocketAction { host: None, port: IntOrString::Int(spec.server_port()) };
    Probe { tcp_socket: Some(socket), ..Probe::default() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> EngineSpec {
        serde_json::from_value(value).unwrap()
    }

    #[rstest]
    #[case(0.5, 30)]
    #[case(10.0, 30)]
    #[case(150.0, 30)]
    #[case(155.0, 31)]
    #[case(300.0, 60)]
    #[case(1200.0, 240)]
    fn startup_attempts_grow_with_the_first_level_and_nothing_else_does(#[case] size: f64, #[case] threshold: i32) {
        assert_eq!(
            json!(startup(&spec(json!({"l1": {"sizeGB": size}})))),
            json!({"tcpSocket": {"port": 5555}, "initialDelaySeconds": 5, "periodSeconds": 5, "failureThreshold": threshold})
        );
    }

    #[test]
    fn probes_ask_the_port_of_the_cache_protocol() {
        let spec = spec(json!({"l1": {"sizeGB": 1}, "server": {"port": 7000}}));
        assert_eq!(json!(liveness(&spec)), json!({"tcpSocket": {"port": 7000}, "periodSeconds": 10}));
        assert_eq!(json!(readiness(&spec)), json!({"tcpSocket": {"port": 7000}, "periodSeconds": 5}));
    }

    #[test]
    fn readiness_asks_the_http_frontend_when_the_spec_says_so() {
        let spec = spec(json!({"l1": {"sizeGB": 1}, "probes": {"readiness": "http"}}));
        let expected = json!({"httpGet": {"path": "/healthcheck", "port": "http"}, "periodSeconds": 5});
        assert_eq!(json!(readiness(&spec)), expected);
        assert_eq!(json!(liveness(&spec)), json!({"tcpSocket": {"port": 5555}, "periodSeconds": 10}));
    }
}
