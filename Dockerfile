# issuebox in a container:
#
#     docker build --tag issuebox .
#     docker run --detach --name issuebox --stop-timeout 20 \
#         --publish 127.0.0.1:8787:8787 --volume issuebox:/var/lib/issuebox \
#         --security-opt seccomp=unconfined --security-opt systempaths=unconfined issuebox
#     docker exec issuebox issuebox doctor
#     docker exec issuebox issuebox login
#
# The security options are for local sandboxes: without them Docker keeps the server from making any,
# and `issuebox doctor` says so. The server needs up to 15 seconds to stop, and Docker waits only 10
# by itself. Mount a configuration as /etc/issuebox/issuebox.toml; it belongs to root or user 1000. If
# it has the admin token, `docker exec issuebox issuebox --config /etc/issuebox/issuebox.toml ls`.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --locked --release --bin issuebox \
    && cp target/release/issuebox /usr/local/bin/

FROM debian:bookworm-slim
# Sandboxes find their tools in this image's /usr: add here what agents need. With e2fsprogs the
# server can limit each sandbox's disk (docs/runbook.md says how); curl is for HEALTHCHECK.
# Debian serves one version of a package at a time, so a pinned one would stop the build one day.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl e2fsprogs git tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 1000 issuebox \
    && useradd --uid 1000 --gid 1000 --home-dir /var/lib/issuebox --shell /usr/sbin/nologin issuebox \
    && install -d -o issuebox -g issuebox -m 0700 /var/lib/issuebox
COPY --from=build /usr/local/bin/issuebox /usr/local/bin/
ENV ISSUEBOX_LISTEN=0.0.0.0:8787 \
    ISSUEBOX_DATA=/var/lib/issuebox \
    ISSUEBOX_LOG_FORMAT=json
# The server reads issuebox.toml of the directory that it starts in.
WORKDIR /etc/issuebox
# A user with a group of its own: the server makes no local sandbox for a user of group 0.
USER 1000:1000
VOLUME /var/lib/issuebox
EXPOSE 8787
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["curl", "--fail", "--silent", "--output", "/dev/null", "http://127.0.0.1:8787/healthz"]
# tini passes signals on, and reaps processes whose parent has ended.
ENTRYPOINT ["tini", "--", "issuebox"]
CMD ["serve"]
