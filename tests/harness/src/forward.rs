//! Port-forwarding to a pod.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::harness::Harness;

/// A port on 127.0.0.1 whose connections end in a pod; closed when dropped.
#[derive(Debug)]
pub struct PortForward {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl PortForward {
    /// Where to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for PortForward {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl<K> Harness<K> {
    /// Forwards a free local port to a port of a pod. Fails when the pod cannot be reached that way; later connections that
    /// fail are closed.
    pub async fn port_forward(&self, pod: &str, port: u16) -> Result<PortForward> {
        let pods: Api<Pod> = Api::namespaced(self.client(), self.namespace());
        drop(pods.portforward(pod, &[port]).await?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let pod = pod.to_owned();
        let accepting = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (pods, pod) = (pods.clone(), pod.clone());
                tokio::spawn(async move {
                    // The client of the connection sees the failure: its connection is closed.
                    let _ = serve(connection, &pods, &pod, port).await;
                });
            }
        });
        Ok(PortForward { address, accepting })
    }
}

async fn serve(mut connection: TcpStream, pods: &Api<Pod>, pod: &str, port: u16) -> Result<()> {
    let mut forwarder = pods.portforward(pod, &[port]).await?;
    let mut upstream = forwarder.take_stream(port).ok_or_else(|| anyhow!("no stream for port {port}"))?;
    tokio::io::copy_bidirectional(&mut connection, &mut upstream).await?;
    drop(upstream);
    Ok(forwarder.join().await?)
}
