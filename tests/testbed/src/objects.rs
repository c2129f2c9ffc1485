//! Objects that tests and demos need in a cluster: nodes, runtime classes, rights, manifests, and steering of live pods.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::wait::conditions::is_crd_established;
use kube::{Api, Client, ResourceExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::{Cluster, annotation};

const DEADLINE: Duration = Duration::from_mins(1);

/// What the operator needs to register its webhooks by URL, beside what it is shipped with.
const REGISTERS: &str = r#"{
  "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "registers-webhooks"},
  "rules": [{
    "apiGroups": ["admissionregistration.k8s.io"],
    "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
    "verbs": ["get", "list", "watch", "create", "patch"]
  }]
}"#;

impl Cluster {
    /// Adds a node with label `nvidia.com/gpu.present: "true"` and waits until it is ready.
    pub async fn add_gpu_node(&self, name: &str) -> Result<()> {
        self.add_node(name, [("nvidia.com/gpu.present", "true")]).await
    }

    /// Adds a simulated node with more of everything than tests ask for, and waits until it is ready.
    pub async fn add_node<'a>(&self, name: &str, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<()> {
        let mut labels: BTreeMap<_, _> = labels.into_iter().collect();
        labels.extend([
            ("kubernetes.io/hostname", name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ]);
        let resources =
            json!({"cpu": "10k", "memory": "1Pi", "ephemeral-storage": "1Pi", "pods": "100k", "nvidia.com/gpu": "1k"});
        let node = serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": resources, "capacity": resources},
        }))?;
        self.nodes().create(&PostParams::default(), &node).await?;
        self.wait_node(name, "True").await
    }

    /// Removes a node and the pods bound to it, as the pod garbage collector would do some time later.
    pub async fn remove_node(&self, name: &str) -> Result<()> {
        self.nodes().delete(name, &DeleteParams::default()).await?;
        let now = DeleteParams::default().grace_period(0);
        for pod in self.pods_on(name).await? {
            let pods = Api::<Pod>::namespaced(self.client(), &pod.namespace().unwrap_or_default());
            if let Err(error) = pods.delete(&pod.name_any(), &now).await
                && !matches!(&error, kube::Error::Api(status) if status.code == 404)
            {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Loses a node as if its kubelet had stopped reporting for longer than the grace period: it is `NotReady` (Unknown) and
    /// so are its pods. Or brings it back, and with it those pods whose containers are ready.
    pub async fn set_node_ready(&self, name: &str, ready: bool) -> Result<()> {
        let value = if ready { Value::Null } else { json!("true") };
        let patch = json!({"metadata": {"annotations": {annotation::NODE_NOT_READY: value}}});
        self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        self.wait_node(name, if ready { "True" } else { "Unknown" }).await?;
        for pod in self.pods_on(name).await? {
            mark_pod(self.client(), &pod, ready).await?;
        }
        Ok(())
    }

    async fn wait_node(&self, name: &str, ready: &str) -> Result<()> {
        let wanted = |node: Option<&Node>| {
            let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
            conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == ready)
        };
        tokio::time::timeout(DEADLINE, await_condition(self.nodes(), name, wanted)).await.with_context(|| {
            format!("node {name} does not report Ready {ready}; see kwok.log in {}", self.state_dir().display())
        })??;
        Ok(())
    }

    /// Creates a `RuntimeClass` whose handler has the same name. Pods that name a class that does not exist are refused.
    pub async fn create_runtime_class(&self, name: &str) -> Result<()> {
        let class = RuntimeClass {
            metadata: kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
            handler: name.to_owned(),
            ..Default::default()
        };
        Api::all(self.client()).create(&PostParams::default(), &class).await?;
        Ok(())
    }

    /// Grants what the operator is shipped with, its own namespace being that of its kubeconfig, and what it needs beside to
    /// register its webhooks by URL.
    pub async fn grant_operator_with_webhooks(&self) -> Result<()> {
        for role in ["manager_role.yaml", "webhook_certificate_role.yaml"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/base").join(role);
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            self.grant_operator(&text.replace("namespace: system", "namespace: default")).await?;
        }
        self.grant_operator(REGISTERS).await
    }

    /// Applies the `ClusterRole`s and `Role`s of these manifests and binds each to the user `operator`, so that an operator
    /// started with [`operator_kubeconfig_path`](Self::operator_kubeconfig_path) has just the rights it is shipped with.
    /// Manifests of other kinds are left out.
    pub async fn grant_operator(&self, manifests: &str) -> Result<()> {
        let mut documents = Vec::new();
        for document in serde_norway::Deserializer::from_str(manifests) {
            let role = Value::deserialize(document)?;
            let (Some(kind @ ("ClusterRole" | "Role")), Some(name)) =
                (role["kind"].as_str(), role["metadata"]["name"].as_str())
            else {
                continue;
            };
            documents.push(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": format!("{kind}Binding"),
                "metadata": {"name": format!("testbed-{name}"), "namespace": role["metadata"]["namespace"]},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [{"kind": "User", "name": "operator", "apiGroup": "rbac.authorization.k8s.io"}],
            }));
            documents.push(role);
        }
        ensure!(!documents.is_empty(), "no ClusterRole or Role in the manifests");
        let documents: Vec<_> = documents.iter().map(serde_json::to_string_pretty).collect::<Result<_, _>>()?;
        self.apply_yaml(&documents.join("\n---\n")).await
    }

    /// Applies manifests (YAML or JSON, several documents) server-side, as an administrator, and waits for definitions of
    /// custom resources among them to be served.
    pub async fn apply_yaml(&self, manifests: &str) -> Result<()> {
        let names = self.kubectl_with(&["apply", "--server-side", "-o", "name", "-f", "-"], manifests).await?;
        let definitions = Api::<CustomResourceDefinition>::all(self.client());
        for line in names.lines() {
            if let Some(name) = line.strip_prefix("customresourcedefinition.apiextensions.k8s.io/") {
                let established = await_condition(definitions.clone(), name, is_crd_established());
                tokio::time::timeout(DEADLINE, established)
                    .await
                    .with_context(|| format!("{name} is not established"))??;
            }
        }
        Ok(())
    }

    /// Runs kubectl as an administrator and returns what it prints.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, "").await
    }

    /// Runs kubectl as an administrator with an input; whether it succeeds, and all that it prints: warnings are on standard
    /// error.
    pub async fn kubectl_says(&self, args: &[&str], input: &str) -> Result<(bool, String)> {
        let output = self.kubectl_output(args, input).await?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8(text)?))
    }

    async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<String> {
        let output = self.kubectl_output(args, input).await?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    async fn kubectl_output(&self, args: &[&str], input: &str) -> Result<Output> {
        let mut child = Command::new(self.kubectl_path())
            .arg("--kubeconfig")
            .arg(self.admin_kubeconfig_path())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        Ok(child.wait_with_output().await?)
    }

    /// Sets (`Some`) or removes (`None`) an annotation of a live pod, which steers it at once; see [`annotation`].
    pub async fn annotate_pod(&self, namespace: &str, pod: &str, key: &str, value: Option<&str>) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        Api::<Pod>::namespaced(self.client(), namespace)
            .patch(pod, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client())
    }

    async fn pods_on(&self, node: &str) -> Result<Vec<Pod>> {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        Ok(Api::<Pod>::all(self.client()).list(&on_node).await?.items)
    }
}

/// Turns a pod's readiness as the node controller does on a lost node, and a kubelet when it is back.
async fn mark_pod(client: Client, pod: &Pod, ready: bool) -> Result<()> {
    let is = |kind: &str| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|it| it.type_ == kind && it.status == "True")
    };
    if is("Ready") == ready || !is("ContainersReady") {
        return Ok(());
    }
    let status = if ready { "True" } else { "False" };
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": now}]}});
    let pods = Api::<Pod>::namespaced(client, &pod.namespace().unwrap_or_default());
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}
