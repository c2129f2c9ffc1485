#!/usr/bin/env bash
# Builds the test control plane once, from pinned Go modules, into a cache outside the checkout.
# Prints the folder that holds the binaries. A folder named by KUBEBUILDER_ASSETS is used as it is.
set -euo pipefail

KUBERNETES=1.36.1 ETCD=3.6.16 KWOK=0.8.0 GO_MINIMUM=1.26
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wanted=(kube-apiserver kube-controller-manager kube-scheduler kubectl etcd kwok)

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  for name in "${wanted[@]}"; do
    [ -x "$KUBEBUILDER_ASSETS/$name" ] || { echo "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS has no executable $name" >&2; exit 1; }
  done
  echo "$KUBEBUILDER_ASSETS"
  exit 0
fi

out="${XDG_CACHE_HOME:-$HOME/.cache}/lmcache-operator/testbed/k8s-$KUBERNETES-etcd-$ETCD-kwok-$KWOK-$(uname -m)"
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9

missing() { local name; for name in "$@"; do [ -x "$out/$name" ] || return 0; done; return 1; }
if ! missing "${wanted[@]}"; then echo "$out"; exit 0; fi

command -v go >/dev/null || { echo "Go $GO_MINIMUM or newer is needed once, to build the test control plane: install it from your distribution or https://go.dev/dl, or point KUBEBUILDER_ASSETS at a folder with ${wanted[*]}" >&2; exit 1; }
have=$(go env GOVERSION); have=${have#go}
if [ "$(printf '%s\n' "$GO_MINIMUM" "$have" | sort -V | head -n 1)" != "$GO_MINIMUM" ]; then
  echo "Go $have is too old to build the test control plane: $GO_MINIMUM or newer is needed (https://go.dev/dl), or point KUBEBUILDER_ASSETS at a folder with ${wanted[*]}" >&2
  exit 1
fi

build() { # module folder, linker flags, packages
  local module=$1 flags=$2; shift 2
  echo "Building $* (once; cached in $out)" >&2
  local stage="$out/.stage-$module"
  mkdir -p "$stage"
  (cd "$here/modules/$module" && CGO_ENABLED=0 GOFLAGS=-mod=mod GOTOOLCHAIN=local go build -trimpath -buildvcs=false -ldflags "-s -w $flags" -o "$stage/" "$@") >&2
  mv "$stage"/* "$out/"
  rmdir "$stage"
}

version=k8s.io/component-base/version
missing kube-apiserver kube-controller-manager kube-scheduler kubectl && build kube \
  "-X $version.gitMajor=1 -X $version.gitMinor=36 -X $version.gitVersion=v$KUBERNETES" \
  k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubectl}
if missing etcd; then
  build etcd "" go.etcd.io/etcd/server/v3
  mv "$out/server" "$out/etcd" 2>/dev/null || mv "$out/v3" "$out/etcd"
fi
missing kwok && build kwok "" sigs.k8s.io/kwok/cmd/kwok
missing "${wanted[@]}" && { echo "the build finished but left binaries out: $(ls "$out")" >&2; exit 1; }
echo "$out"
