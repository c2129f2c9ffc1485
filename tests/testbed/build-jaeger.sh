#!/usr/bin/env bash
# Builds Jaeger (the receiver and store of traces in tests and demos) once, from a pinned Go module, into a cache outside
# the checkout. Prints the binary. A jaeger in the folder named by KUBEBUILDER_ASSETS is used as it is.
set -euo pipefail

JAEGER=1.76.0 GO_MINIMUM=1.26
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/jaeger" ]; then
  echo "$KUBEBUILDER_ASSETS/jaeger"
  exit 0
fi

out="${XDG_CACHE_HOME:-$HOME/.cache}/lmcache-operator/testbed/jaeger-$JAEGER-$(uname -m)"
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
if [ -x "$out/jaeger" ]; then echo "$out/jaeger"; exit 0; fi

advice="or put an executable jaeger into the folder that KUBEBUILDER_ASSETS names"
command -v go >/dev/null || { echo "Go $GO_MINIMUM or newer is needed once, to build Jaeger: install it from your distribution or https://go.dev/dl, $advice" >&2; exit 1; }
have=$(go env GOVERSION); have=${have#go}
if [ "$(printf '%s\n' "$GO_MINIMUM" "$have" | sort -V | head -n 1)" != "$GO_MINIMUM" ]; then
  echo "Go $have is too old to build Jaeger: $GO_MINIMUM or newer is needed (https://go.dev/dl), $advice" >&2
  exit 1
fi

echo "Building Jaeger $JAEGER (once, several minutes; cached in $out)" >&2
(cd "$here/modules/jaeger" && CGO_ENABLED=0 GOFLAGS=-mod=mod GOTOOLCHAIN=local go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$out/.jaeger" github.com/jaegertracing/jaeger/cmd/jaeger) >&2
# The binary appears under its name only when it is whole.
mv "$out/.jaeger" "$out/jaeger"
echo "$out/jaeger"
