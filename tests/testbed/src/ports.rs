//! Free ports on loopback.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

/// Below the range that the kernel takes source ports from: a server that is stopped and started again on its port must not
/// find that an outgoing connection has taken it in the meantime, nor a client reconnect to itself.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// `N` different ports on 127.0.0.1 that nobody listens on.
pub(crate) fn free<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = listen()?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn listen() -> Result<TcpListener> {
    let span = u64::from(RANGE.end - RANGE.start);
    for _ in 0..200 {
        let random = RandomState::new().build_hasher().finish();
        let port = RANGE.start + u16::try_from(random % span)?;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Ok(listener);
        }
    }
    bail!("no free port on 127.0.0.1 in {RANGE:?}")
}
