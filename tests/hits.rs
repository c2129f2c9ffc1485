//! Hit tokens: from what cache servers publish to `status.cache`, the column and the counters.
//!
//! Simulated pods on the network of their node have the node's address, which is loopback; a small server answers there.
#![allow(clippy::unwrap_used)]

#[path = "common/mod.rs"]
mod common;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use common::{Bed, Operator, engine, project};
use lmcache_crds::{CacheStatus, LMCacheEngine};
use lmcache_harness::{Harness, Judgement};
use serde_json::json;
use tokio::sync::watch;

const NAME: &str = "counted";

/// What the stand-in for a cache server says.
#[derive(Clone)]
enum Says {
    Counts { family: &'static str, hit: u64, requested: u64 },
    Garbage,
    TooMuch,
    Nothing,
    Broken,
}

impl Says {
    fn response(&self) -> Response {
        match self {
            Says::Counts { family, hit, requested } => {
                let path = project().join(format!("tests/fixtures/metrics/{family}.txt"));
                let text = std::fs::read_to_string(path).unwrap();
                let text = text.replace("@HIT@", &format!("{hit}.0")).replace("@REQUESTED@", &format!("{requested}.0"));
                text.into_response()
            }
            Says::Garbage => Body::from((0..=255_u8).cycle().take(1 << 20).collect::<Vec<_>>()).into_response(),
            Says::TooMuch => "x_total{a=\"b\"} 1\n".repeat((10 << 20) / 17).into_response(),
            Says::Nothing => {
                Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>()).into_response()
            }
            Says::Broken => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// The server; it says the same to every instance that shares its address.
#[derive(Clone)]
struct Server {
    says: Arc<Mutex<Says>>,
    asked: watch::Sender<usize>,
    port: u16,
}

impl Server {
    async fn start() -> Result<Self> {
        let says = Arc::new(Mutex::new(Says::Broken));
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let server = Server { says, asked: watch::Sender::new(0), port };
        let answer = |State(server): State<Server>| async move {
            server.asked.send_modify(|asked| *asked += 1);
            let says = server.says.lock().unwrap().clone();
            says.response()
        };
        let router = Router::new().route("/metrics", get(answer)).with_state(server.clone());
        tokio::spawn(async { axum::serve(listener, router).await });
        Ok(server)
    }

    /// Waits until both instances have been asked in two rounds more.
    async fn asked_again(&self) -> Result<()> {
        let mut asked = self.asked.subscribe();
        let enough = *asked.borrow() + 5;
        let waiting = asked.wait_for(|asked| *asked >= enough);
        tokio::time::timeout(Duration::from_secs(30), waiting).await.context("nobody asks the server")??;
        Ok(())
    }

    fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    fn count(&self, family: &'static str, hit: u64, requested: u64) {
        self.say(Says::Counts { family, hit, requested });
    }
}

async fn operator(bed: &Bed, name: &str) -> Result<Operator> {
    bed.operator(name, &["--cache-metrics-interval=1s"]).await
}

/// Waits until the status shows these sums.
async fn counted(suite: &Harness, hit: i64, requested: i64) -> Result<CacheStatus> {
    let of = |it: &LMCacheEngine| it.status.as_ref().and_then(|it| it.cache.clone());
    let judge = |it: &LMCacheEngine| {
        Judgement::from(of(it).is_some_and(|it| (it.hit_tokens, it.requested_tokens) == (hit, requested)))
    };
    let engine = suite.wait(NAME, &format!("{hit} of {requested} tokens"), judge).await?;
    of(&engine).context("it was there")
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_are_summed_and_never_fall() -> Result<()> {
    let bed = Bed::start("hits").await?;
    for node in ["gpu-1", "gpu-2"] {
        bed.cluster.add_gpu_node(node).await?;
    }
    let mut first = operator(&bed, "first").await?;
    let suite = Harness::in_new_namespace(bed.cluster.client(), "hits").await?;
    let server = Server::start().await?;
    let spec = json!({"l1": {"sizeGB": 1}, "hostNetwork": true, "server": {"httpPort": server.port}});
    suite.apply_fixture(&engine(NAME, &spec)).await?;
    let ready = suite.wait_ready(NAME).await?;
    ensure!(ready.status.as_ref().is_some_and(|it| it.cache.is_none()), "{:?}", ready.status);

    // Two instances say the same.
    server.count("present", 634, 1000);
    let cache = counted(&suite, 1268, 2000).await?;
    ensure!(cache.hit_rate.as_deref() == Some("63.4%"), "{cache:?}");
    let columns = bed.cluster.kubectl(&["get", "lmc", "-n", suite.namespace(), "-o", "wide"]).await?;
    ensure!(columns.contains("HIT-RATE") && columns.contains("63.4%"), "{columns}");

    // Servers start anew: what they had counted stays counted.
    server.count("older", 10, 50);
    counted(&suite, 1288, 2100).await?;

    // What is no answer changes nothing; the next answer does.
    for nonsense in [Says::Garbage, Says::TooMuch, Says::Broken] {
        server.say(nonsense);
        server.asked_again().await?;
    }
    server.count("older", 11, 51);
    counted(&suite, 1290, 2102).await?;

    let address = first.address("Serving metrics server").await?;
    let text = text_of(&address).await?;
    for (family, value) in [("hit", 1290), ("requested", 2102)] {
        let namespace = suite.namespace();
        let line = format!(
            r#"lmcache_operator_cache_{family}_tokens_total{{kind="LMCacheEngine",namespace="{namespace}",name="{NAME}"}} {value}"#
        );
        ensure!(text.lines().any(|it| it == line), "no {line} in\n{text}");
    }

    // Another operator goes on where this one ended.
    first.program.kill();
    server.count("older", 21, 61);
    let _second = operator(&bed, "second").await?;
    server.asked_again().await?;
    server.count("older", 31, 81);
    counted(&suite, 1310, 2142).await?;
    suite.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_counts_stand_still_is_left_alone() -> Result<()> {
    let bed = Bed::start("still").await?;
    bed.cluster.add_gpu_node("gpu-1").await?;
    let _operator = operator(&bed, "manager").await?;
    let suite = Harness::in_new_namespace(bed.cluster.client(), "still").await?;
    let server = Server::start().await?;
    server.count("present", 5, 10);
    let spec = json!({"l1": {"sizeGB": 1}, "hostNetwork": true, "server": {"httpPort": server.port}});
    suite.apply_fixture(&engine(NAME, &spec)).await?;
    suite.wait_ready(NAME).await?;
    counted(&suite, 5, 10).await?;
    let version = |it: &LMCacheEngine| it.metadata.resource_version.clone();
    let before = version(&suite.get(NAME).await?);
    server.asked_again().await?;
    ensure!(version(&suite.get(NAME).await?) == before, "the status was written again");

    // A server that begins to answer and never ends holds nobody up: a change of the spec is served at once.
    server.say(Says::Nothing);
    suite.patch(NAME, json!({"spec": {"logLevel": "DEBUG"}})).await?;
    suite.wait_ready(NAME).await?;
    suite.finish().await
}

async fn text_of(address: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}
