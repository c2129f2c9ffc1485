#!/usr/bin/env bash
# Prints a folder with prometheus and promtool. PROMETHEUS_ASSETS names one; otherwise those in PATH are taken; otherwise
# the package of the distribution is downloaded once and unpacked into a cache outside the checkout, without root.
set -euo pipefail

wanted=(prometheus promtool)
complete() { local name; for name in "${wanted[@]}"; do [ -x "$1/$name" ] || return 1; done; }
advice="install Prometheus (its package is called prometheus on Debian and Ubuntu, or https://prometheus.io/download), or point PROMETHEUS_ASSETS at a folder with ${wanted[*]}"

if [ -n "${PROMETHEUS_ASSETS:-}" ]; then
  complete "$PROMETHEUS_ASSETS" || { echo "PROMETHEUS_ASSETS=$PROMETHEUS_ASSETS lacks one of ${wanted[*]}" >&2; exit 1; }
  echo "$PROMETHEUS_ASSETS"
  exit 0
fi
if found=$(command -v prometheus) && complete "$(dirname "$found")"; then dirname "$found"; exit 0; fi

out="${XDG_CACHE_HOME:-$HOME/.cache}/lmcache-operator/testbed/prometheus-$(uname -m)"
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
if complete "$out"; then echo "$out"; exit 0; fi

for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || { echo "Prometheus is needed for this suite and cannot be downloaded without $tool: $advice" >&2; exit 1; }
done
stage=$(mktemp -d "$out/.stage-XXXXXX")
trap 'rm -rf "$stage"' EXIT
cd "$stage"
echo "Downloading Prometheus (once; cached in $out)" >&2
# The machine's own package lists may be empty or too old, and only root may fetch them: then with lists of our own.
own=(-o "Dir::State=$stage/state" -o "Dir::Cache=$stage/cache" -o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User=)
mkdir -p state/lists/partial cache/archives/partial
if ! apt-get -q -o APT::Sandbox::User= download prometheus >&2; then
  { apt-get -q "${own[@]}" update && apt-get -q "${own[@]}" download prometheus; } >&2 ||
    { echo "Prometheus is needed for this suite and could not be downloaded, the reason is above: $advice" >&2; exit 1; }
fi
dpkg-deb -x prometheus_*.deb unpacked
for name in "${wanted[@]}"; do mv "unpacked/usr/bin/$name" "$out/$name"; done
complete "$out" || { echo "the package holds no ${wanted[*]}: $advice" >&2; exit 1; }
echo "$out"
