//! Container images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resolve::{DEFAULT_REPOSITORY, DEFAULT_TAG, non_empty};

/// When the kubelet pulls an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// At every start of a container.
    Always,
    /// Never; the image must be on the node.
    Never,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
}

impl PullPolicy {
    /// The name as it stands in a container's `imagePullPolicy`.
    pub const fn as_str(self) -> &'static str {
        match self {
            PullPolicy::Always => "Always",
            PullPolicy::Never => "Never",
            PullPolicy::IfNotPresent => "IfNotPresent",
        }
    }
}

/// Image of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSpec {
    /// Registry and repository, without tag. Default lmcache/vllm-openai.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "lmcache/vllm-openai"))]
    pub repository: Option<String>,

    /// Tag. Default latest. Not used while digest is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "latest"))]
    pub tag: Option<String>,

    /// Digest, such as sha256: followed by 64 hexadecimal digits. Default none. It wins over tag: the image is then
    /// repository@digest, the same bytes on every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = crate::validation::IMAGE_DIGEST, "maxLength" = 255))]
    pub digest: Option<String>,

    /// When the kubelet pulls the image: Always, Never or IfNotPresent. Default IfNotPresent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "IfNotPresent"))]
    pub pull_policy: Option<PullPolicy>,
}

/// Image of the files that are staged into injected pods.
///
/// A type of its own, without a default repository (D15): the server's image in this place starts a server that never
/// ends, and the injected pod hangs in its init container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["repository"]))]
pub struct PayloadImageSpec {
    /// Registry and repository, without tag. No default; must not be empty. The value lmcache/vllm-openai counts as
    /// unset, because older releases stored it here unasked and that image is no payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub repository: Option<String>,

    /// Tag. Default latest. Not used while digest is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "latest"))]
    pub tag: Option<String>,

    /// Digest, such as sha256: followed by 64 hexadecimal digits. Default none. It wins over tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = crate::validation::IMAGE_DIGEST, "maxLength" = 255))]
    pub digest: Option<String>,

    /// When the kubelet pulls the image: Always, Never or IfNotPresent. Default IfNotPresent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "IfNotPresent"))]
    pub pull_policy: Option<PullPolicy>,
}

impl ImageSpec {
    /// `repository@digest`, else `repository:tag`; unset and empty parts are `lmcache/vllm-openai` and `latest`.
    pub fn reference(&self) -> String {
        let repository = non_empty(self.repository.as_ref()).unwrap_or(DEFAULT_REPOSITORY);
        reference(repository, self.tag.as_ref(), self.digest.as_ref())
    }
}

impl PayloadImageSpec {
    /// Whether no usable repository is named: none, an empty one, or the server's image (D15).
    pub fn is_unset(&self) -> bool {
        non_empty(self.repository.as_ref()).is_none() || self.is_server_image()
    }

    /// Whether the repository is the server's, which older releases stored here unasked (D15).
    pub fn is_server_image(&self) -> bool {
        self.repository.as_deref() == Some(DEFAULT_REPOSITORY)
    }

    /// `repository@digest`, else `repository:tag`, `latest` where the tag is unset or empty; nothing where the repository
    /// is unset.
    pub fn reference(&self) -> Option<String> {
        if self.is_unset() {
            return None;
        }
        let repository = self.repository.as_deref()?;
        Some(reference(repository, self.tag.as_ref(), self.digest.as_ref()))
    }

    /// `pullPolicy`, by default `IfNotPresent`.
    pub fn pull_policy(&self) -> PullPolicy {
        self.pull_policy.unwrap_or_default()
    }
}

fn reference(repository: &str, tag: Option<&String>, digest: Option<&String>) -> String {
    match non_empty(digest) {
        Some(digest) => format!("{repository}@{digest}"),
        None => format!("{repository}:{}", non_empty(tag).unwrap_or(DEFAULT_TAG)),
    }
}
