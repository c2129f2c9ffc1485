# syntax=docker/dockerfile:1

# Alpine's Rust builds for musl: one static binary that needs no C library beside it.
FROM rust:1.95.0-alpine AS build
RUN apk add --no-cache gcc musl-dev
WORKDIR /src
COPY . .
ARG TARGETARCH
# Shown by --version and by the metric build_info.
ARG LMCACHE_OPERATOR_COMMIT=unknown
# The toolchain of the image is the pinned one; without this rustup would fetch components that a build does not need.
ENV RUSTUP_TOOLCHAIN=1.95.0 LMCACHE_OPERATOR_COMMIT=${LMCACHE_OPERATOR_COMMIT}
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,id=lmcache-operator-target-${TARGETARCH},sharing=locked \
    cargo build --release --locked --bin manager && cp target/release/manager /manager

# Nothing but the binary: it trusts the cluster's own CA and writes no file.
FROM scratch
COPY --from=build /manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
