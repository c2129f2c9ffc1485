#!/usr/bin/env bash
# Licences, sources and bans of every dependency, as deny.toml wants them. The tool is built once, into a cache outside of the
# checkout. Advisories need a database from the network: `cargo deny check advisories`.
set -euo pipefail

DENY=0.20.2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out="${XDG_CACHE_HOME:-$HOME/.cache}/lmcache-operator/tools/cargo-deny-$DENY-$(uname -m)"
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
if [ ! -x "$out/bin/cargo-deny" ]; then
  echo "Building cargo-deny $DENY (once, a few minutes; cached in $out)" >&2
  CARGO_TARGET_DIR="$out/target" cargo install --quiet --locked --root "$out" --version "$DENY" cargo-deny >&2
  rm -rf "$out/target"
fi
cd "$here/.."
exec "$out/bin/cargo-deny" --locked --log-level error check licenses bans sources
