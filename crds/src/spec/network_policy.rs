//! Who may reach an engine over the network.

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may reach the engine over the network.
///
/// The HTTP frontend listens on all addresses (D84) and has administrative routes without authentication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicySpec {
    /// Whether a NetworkPolicy of the engine's name is made. Default false. It has an effect only where the cluster's
    /// network plugin enforces policies, and none on pods with hostNetwork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enabled: Option<bool>,

    /// Who may reach server.port and server.httpPort. Unset: pods of the engine's namespace only. An empty list: nobody.
    /// Remember Prometheus (it scrapes server.httpPort) and vLLM pods of other namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Vec<NetworkPolicyPeer>>,
}
