//! The testbed does what it promises: nodes and pods behave as told, clusters do not disturb each other, nothing stays behind.
#![allow(clippy::unwrap_used)]

use std::io::BufRead as _;
use std::path::Path;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ContainerStatus, Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use lmcache_testbed::annotation::{self, fail};
use lmcache_testbed::{Cluster, ClusterOptions, detached};
use serde_json::json;

struct Bed {
    cluster: Cluster,
    pods: Api<Pod>,
    sets: Api<DaemonSet>,
}

impl Bed {
    async fn start() -> Self {
        let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
        cluster.add_gpu_node("gpu-1").await.unwrap();
        let client = cluster.client();
        Self { pods: Api::default_namespaced(client.clone()), sets: Api::default_namespaced(client), cluster }
    }

    async fn create(&self, name: &str, annotations: serde_json::Value) {
        let labels = json!({"app": name});
        let set = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {"containers": [{"name": "lmcache", "image": "example.com/lmcache:1"}]},
            }},
        }))
        .unwrap();
        self.sets.create(&PostParams::default(), &set).await.unwrap();
    }

    /// Waits for a pod of the set that fulfils the condition.
    async fn pod(&self, set: &str, what: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let config = watcher::Config::default().labels(&format!("app={set}"));
        let mut last = None;
        let search = async {
            let mut pods = watcher(self.pods.clone(), config).applied_objects().boxed();
            while let Some(pod) = pods.try_next().await.unwrap() {
                if wanted(&pod) {
                    return pod;
                }
                last = Some(pod);
            }
            unreachable!("a watch does not end")
        };
        if let Ok(pod) = tokio::time::timeout(Duration::from_secs(40), search).await {
            return pod;
        }
        panic!("no pod of {set} is {what}; last: {}\n{}", serde_json::to_string_pretty(&last).unwrap(), self.kwok_log())
    }

    async fn annotate(&self, pod: &Pod, key: &str, value: Option<&str>) {
        self.cluster.annotate_pod("default", &pod.name_any(), key, value).await.unwrap();
    }

    fn kwok_log(&self) -> String {
        std::fs::read_to_string(self.cluster.state_dir().join("kwok.log")).unwrap_or_default()
    }
}

fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

fn waiting(pod: &Pod) -> Option<(&str, &str)> {
    let state = container(pod)?.state.as_ref()?.waiting.as_ref()?;
    Some((state.reason.as_deref()?, state.message.as_deref()?))
}

fn last_exit(pod: &Pod) -> Option<(i32, &str)> {
    let last = container(pod)?.last_state.as_ref()?.terminated.as_ref()?;
    Some((last.exit_code, last.reason.as_deref()?))
}

fn running_unstarted(pod: &Pod) -> bool {
    container(pod)
        .is_some_and(|it| it.started == Some(false) && it.state.as_ref().is_some_and(|it| it.running.is_some()))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_ready_fail_and_heal_as_told() {
    let bed = Bed::start().await;

    bed.create("plain", json!({})).await;
    let pod = bed.pod("plain", "ready", ready).await;
    let status = pod.status.as_ref().unwrap();
    assert_eq!(
        (status.host_ip.as_deref(), status.phase.as_deref()),
        (Some("127.0.0.1"), Some("Running")),
        "{status:?}"
    );
    assert!(status.pod_ip.as_ref().is_some_and(|ip| ip.starts_with("10.0.")), "{status:?}");

    bed.annotate(&pod, annotation::LOSE, Some("true")).await;
    let lost = bed.pod("plain", "lost", |pod| !ready(pod)).await;
    assert_eq!(container(&lost).map(|it| (it.started, it.ready)), Some((Some(true), false)), "{lost:?}");
    bed.annotate(&pod, annotation::LOSE, None).await;
    bed.pod("plain", "healed", ready).await;

    bed.annotate(&pod, annotation::FAIL, Some(fail::OOM_KILLED)).await;
    let killed = bed.pod("plain", "killed", |pod| waiting(pod).is_some()).await;
    assert_eq!(waiting(&killed).unwrap().0, "CrashLoopBackOff");
    assert_eq!(last_exit(&killed), Some((137, "OOMKilled")));
    bed.annotate(&pod, annotation::FAIL, None).await;
    let healed = bed.pod("plain", "healed", ready).await;
    assert_eq!(container(&healed).map(|it| (it.restart_count, it.started)), Some((1, Some(true))));
    assert_eq!(last_exit(&healed), Some((137, "OOMKilled")));

    for (reason, text) in [
        (fail::IMAGE_PULL_BACK_OFF, "Back-off pulling image \"example.com/lmcache:1\""),
        (fail::ERR_IMAGE_PULL, "failed to pull and unpack image"),
        (fail::CREATE_CONTAINER_CONFIG_ERROR, "my own words"),
    ] {
        let set = reason.to_lowercase();
        let message = if text.starts_with("my") { text } else { "" };
        bed.create(&set, json!({annotation::FAIL: reason, annotation::MESSAGE: message})).await;
        let pod = bed.pod(&set, reason, |pod| waiting(pod).is_some_and(|(is, _)| is == reason)).await;
        assert!(waiting(&pod).unwrap().1.contains(text), "{:?}", waiting(&pod));
        assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Pending"));
        bed.annotate(&pod, annotation::FAIL, None).await;
        bed.pod(&set, "healed", ready).await;
    }

    bed.create("crash", json!({annotation::FAIL: fail::CRASH_LOOP_BACK_OFF, annotation::EXIT_CODE: "3"})).await;
    let pod = bed.pod("crash", "crashing", |pod| waiting(pod).is_some()).await;
    assert_eq!(last_exit(&pod), Some((3, "Error")));
    assert!(waiting(&pod).unwrap().1.contains("restarting failed container=lmcache"), "{:?}", waiting(&pod));

    bed.create("probe", json!({annotation::FAIL: fail::STARTUP_PROBE})).await;
    let pod = bed.pod("probe", "killed by its startup probe", running_unstarted).await;
    assert_eq!(last_exit(&pod), Some((137, "Error")));
    let about = format!("--field-selector=involvedObject.name={},reason=Killing", pod.name_any());
    let events = bed.cluster.kubectl(&["get", "events", &about, "-o", "jsonpath={.items[*].message}"]).await.unwrap();
    assert!(events.contains("failed startup probe"), "{events:?}");
    bed.annotate(&pod, annotation::FAIL, None).await;
    bed.pod("probe", "healed", ready).await;

    let log = bed.kwok_log();
    assert!(!log.lines().any(|line| line.contains("ERROR") || line.contains("ERR ")), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_held_back_until_it_is_released() {
    let bed = Bed::start().await;
    bed.create("slow", json!({annotation::READY_AFTER: "2s"})).await;
    let pod = bed.pod("slow", "on its way", running_unstarted).await;
    assert!(!ready(&pod));
    bed.pod("slow", "ready", ready).await;

    // A pod that is already on its way to ready is still held.
    bed.create("held", json!({annotation::READY_AFTER: "1500ms"})).await;
    let pod = bed.pod("held", "on its way", running_unstarted).await;
    bed.annotate(&pod, annotation::HOLD, Some("true")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!ready(&bed.pods.get(&pod.name_any()).await.unwrap()));
    bed.annotate(&pod, annotation::HOLD, None).await;
    bed.pod("held", "ready", ready).await;

    bed.create("lingering", json!({annotation::TERMINATE_AFTER: "1s"})).await;
    let pod = bed.pod("lingering", "ready", ready).await;
    bed.pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(bed.pods.get(&pod.name_any()).await.unwrap().metadata.deletion_timestamp.is_some());
    bed.pod("lingering", "replaced", |it| ready(it) && it.uid() != pod.uid()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_lost_comes_back_and_is_removed() {
    let bed = Bed::start().await;
    bed.create("plain", json!({})).await;
    bed.pod("plain", "ready", ready).await;
    bed.cluster.set_node_ready("gpu-1", false).await.unwrap();
    bed.pod("plain", "lost with its node", |pod| !ready(pod)).await;
    bed.cluster.set_node_ready("gpu-1", true).await.unwrap();
    bed.pod("plain", "back with its node", ready).await;
    bed.cluster.remove_node("gpu-1").await.unwrap();
    let left = bed.pods.list(&kube::api::ListParams::default()).await.unwrap().items;
    assert!(left.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_has_only_what_it_was_granted_and_is_audited() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let operator = cluster.operator_kubeconfig_path();
    let as_operator = ["--kubeconfig", operator.to_str().unwrap()];
    let ask = |args: &[&str]| {
        let args: Vec<_> = as_operator.iter().chain(args).map(ToString::to_string).collect();
        let kubectl = cluster.kubectl_path();
        async move { tokio::process::Command::new(kubectl).args(args).output().await.unwrap() }
    };
    assert!(!ask(&["get", "nodes"]).await.status.success());
    let role = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: other}\n---\n\
        apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: manager}\n\
        rules: [{apiGroups: [''], resources: [nodes], verbs: [get, list]}]\n";
    cluster.grant_operator(role).await.unwrap();
    let allowed = ask(&["get", "nodes"]).await;
    assert!(allowed.status.success(), "{allowed:?}");
    let refused = ask(&["get", "secrets"]).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("User \"operator\" cannot list"), "{refused:?}");

    let audit = std::fs::read_to_string(cluster.audit_log_path()).unwrap();
    assert!(audit.lines().any(|line| line.contains("\"verb\":\"list\"") && line.contains("/api/v1/nodes")), "{audit}");
    assert!(audit.lines().all(|line| line.contains("\"username\":\"operator\"")), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_live_side_by_side_and_the_api_server_restarts() {
    let options = ClusterOptions::default;
    let (one, two) = tokio::join!(Cluster::start(options()), Cluster::start(options()));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.server_url(), two.server_url());
    let namespaces = |cluster: &Cluster| Api::<Namespace>::all(cluster.client());
    let patch = Patch::Apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}}));
    namespaces(&one).patch("mine", &PatchParams::apply("test"), &patch).await.unwrap();
    assert!(namespaces(&two).get_opt("mine").await.unwrap().is_none());

    one.restart_apiserver().await.unwrap();
    assert!(namespaces(&one).get_opt("mine").await.unwrap().is_some());
    assert!(one.memory().iter().any(|it| it.name == "kube-apiserver" && it.resident > 0));

    let kept = one.pids();
    two.stop().await;
    assert_eq!(one.pids(), kept);
    assert!(namespaces(&one).get_opt("mine").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_behind() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let (pids, state) = (cluster.pids(), cluster.state_dir().to_owned());
    assert_eq!(pids.len(), 5, "{pids:?}");
    drop(cluster);
    let alive: Vec<_> = pids.iter().filter(|(_, pid)| Path::new(&format!("/proc/{pid}")).exists()).collect();
    assert!(alive.is_empty(), "{alive:?}");
    assert!(!state.exists());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process that the next test kills"]
async fn owner() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    println!("\npids {}", serde_json::to_string(&cluster.pids()).unwrap());
    tokio::time::sleep(Duration::from_mins(5)).await;
}

#[test]
fn a_killed_owner_takes_its_cluster_along() {
    let mut owner = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["owner", "--exact", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(owner.stdout.take().unwrap()).lines();
    let pids = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("pids ").map(str::to_owned)).unwrap();
    let pids: Vec<(String, u32)> = serde_json::from_str(&pids).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    // What nobody reaps stays a zombie; it runs no more.
    let runs = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|it| !it.1.starts_with('Z'))
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while pids.iter().any(|it| runs(it.1)) {
        assert!(std::time::Instant::now() < deadline, "{pids:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_cluster_is_found_again_and_ended() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("background-{}", std::process::id()));
    let cluster = detached::up(&dir, "mine", 1).await.unwrap();
    assert_eq!(detached::up(&dir, "mine", 1).await.unwrap(), cluster);
    let states = detached::read(&dir).unwrap().unwrap().components();
    assert!(states.len() == 5 && states.iter().all(|it| it.running), "{states:?}");
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(cluster.client().await.unwrap());
    assert_eq!(nodes.list(&kube::api::ListParams::default()).await.unwrap().items.len(), 1);
    assert!(detached::down(&dir).await.unwrap());
    assert!(!dir.exists());
    assert!(cluster.components().iter().all(|it| !it.running), "{:?}", cluster.components());
    assert!(!detached::down(&dir).await.unwrap());
}
