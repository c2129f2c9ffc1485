//! The command line of every component.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::files::private_file;
use crate::kubeconfig;
use crate::pki::Pki;
use crate::process::{Component, Lifetime};

const STAGES: [&str; 9] = [
    include_str!("../stages/node-initialize.yaml"),
    include_str!("../stages/node-heartbeat.yaml"),
    include_str!("../stages/node-not-ready.yaml"),
    include_str!("../stages/pod-ready.yaml"),
    include_str!("../stages/pod-unready.yaml"),
    include_str!("../stages/pod-fail.yaml"),
    include_str!("../stages/pod-startup-probe.yaml"),
    include_str!("../stages/pod-delete.yaml"),
    include_str!("../stages/idle.yaml"),
];

const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: [operator]}
- {level: None}
";

/// Ports of one cluster, all on 127.0.0.1.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    pub etcd: u16,
    pub peer: u16,
    pub apiserver: u16,
}

/// What the command lines are made from.
pub(crate) struct Layout<'a> {
    pub binaries: &'a Path,
    pub state: &'a Path,
    pub name: &'a str,
    pub ports: Ports,
    pub lifetime: Lifetime,
}

/// The components in the order in which they start, with their certificates, kubeconfigs and configuration written.
pub(crate) fn prepare(layout: &Layout<'_>) -> Result<Vec<Component>> {
    let state = layout.state;
    let pki_folder = state.join("pki");
    crate::files::private_folder(&pki_folder)?;
    let pki = Pki::create(&pki_folder)?;
    let admin = pki.client("admin", Some("system:masters"))?;
    let operator = pki.client("operator", None)?;
    for (file, identity) in [("admin.kubeconfig", &admin), ("operator.kubeconfig", &operator)] {
        kubeconfig::write(state.join(file), layout.name, layout.ports.apiserver, &pki.authority_file(), identity)?;
    }
    Ok(vec![
        layout.component("etcd", etcd(layout)),
        layout.component("kube-apiserver", apiserver(layout, &pki)?),
        layout.component("kube-controller-manager", controller_manager(layout, &pki)?),
        layout.component("kube-scheduler", scheduler(layout, &pki)?),
        layout.component("kwok", kwok(layout, &pki)?),
    ])
}

impl Layout<'_> {
    fn component(&self, name: &'static str, args: Vec<String>) -> Component {
        let log = self.state.join(format!("{name}.log"));
        Component::new(name, self.binaries.join(name), args, log, self.lifetime)
    }

    /// A kubeconfig for a component of its own name, with every right: what a component may do is not under test here.
    fn component_kubeconfig(&self, pki: &Pki, user: &str) -> Result<PathBuf> {
        let identity = pki.client(user, Some("system:masters"))?;
        let path = self.state.join(format!("{}.kubeconfig", user.trim_start_matches("system:")));
        kubeconfig::write(path, self.name, self.ports.apiserver, &pki.authority_file(), &identity)
    }
}

fn flags(pairs: &[(&str, &dyn std::fmt::Display)]) -> Vec<String> {
    pairs.iter().map(|(flag, value)| format!("--{flag}={value}")).collect()
}

fn etcd(layout: &Layout<'_>) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", layout.ports.etcd);
    let peer = format!("http://127.0.0.1:{}", layout.ports.peer);
    flags(&[
        ("data-dir", &layout.state.join("etcd").display()),
        ("listen-client-urls", &client),
        ("advertise-client-urls", &client),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
        ("initial-cluster", &format!("default={peer}")),
        ("unsafe-no-fsync", &true),
        ("quota-backend-bytes", &4_294_967_296_u64),
        ("log-level", &"warn"),
    ])
}

fn apiserver(layout: &Layout<'_>, pki: &Pki) -> Result<Vec<String>> {
    let policy = layout.state.join("audit-policy.yaml");
    private_file(&policy, AUDIT_POLICY)?;
    let serving = pki.server()?;
    let (signing, public) = pki.service_account_keys()?;
    Ok(flags(&[
        ("etcd-servers", &format!("http://127.0.0.1:{}", layout.ports.etcd)),
        ("bind-address", &"127.0.0.1"),
        ("secure-port", &layout.ports.apiserver),
        // Nothing routes Services here, and the endpoint of Service kubernetes must not be a loopback address.
        ("endpoint-reconciler-type", &"none"),
        ("advertise-address", &"127.0.0.1"),
        ("tls-cert-file", &serving.certificate.display()),
        ("tls-private-key-file", &serving.key.display()),
        ("client-ca-file", &pki.authority_file().display()),
        ("authorization-mode", &"Node,RBAC"),
        ("service-account-issuer", &"https://kubernetes.default.svc"),
        ("service-account-signing-key-file", &signing.display()),
        ("service-account-key-file", &public.display()),
        ("service-cluster-ip-range", &"10.96.0.0/16"),
        ("allow-privileged", &true),
        ("profiling", &false),
        ("audit-policy-file", &policy.display()),
        ("audit-log-path", &layout.state.join("audit.log").display()),
        ("audit-log-maxsize", &2048),
    ]))
}

fn controller_manager(layout: &Layout<'_>, pki: &Pki) -> Result<Vec<String>> {
    let kubeconfig = layout.component_kubeconfig(pki, "system:kube-controller-manager")?;
    Ok(flags(&[
        ("kubeconfig", &kubeconfig.display()),
        ("service-account-private-key-file", &layout.state.join("pki/service-account.key").display()),
        ("root-ca-file", &pki.authority_file().display()),
        ("controllers", &"*,-nodeipam"),
        // Tests say themselves which node is lost; after a restart of the API server the simulated kubelets may not report.
        ("node-monitor-grace-period", &"24h"),
        ("kube-api-qps", &1000),
        ("kube-api-burst", &2000),
        ("leader-elect", &false),
        ("secure-port", &0),
        ("profiling", &false),
    ]))
}

fn scheduler(layout: &Layout<'_>, pki: &Pki) -> Result<Vec<String>> {
    let kubeconfig = layout.component_kubeconfig(pki, "system:kube-scheduler")?;
    Ok(flags(&[
        ("kubeconfig", &kubeconfig.display()),
        ("kube-api-qps", &1000),
        ("kube-api-burst", &2000),
        ("leader-elect", &false),
        ("secure-port", &0),
        ("profiling", &false),
    ]))
}

fn kwok(layout: &Layout<'_>, pki: &Pki) -> Result<Vec<String>> {
    let kubeconfig = layout.component_kubeconfig(pki, "kwok")?;
    let config = layout.state.join("kwok.yaml");
    private_file(&config, &STAGES.join("---\n"))?;
    Ok(flags(&[
        ("kubeconfig", &kubeconfig.display()),
        ("config", &config.display()),
        ("manage-all-nodes", &true),
        ("node-ip", &"127.0.0.1"),
        ("cidr", &"10.0.0.1/16"),
    ]))
}
