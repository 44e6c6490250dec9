# The images of operator, manager and agent, for amd64 and arm64. Without a container tool: make images.
#
# docker build --target operator -t hawser/operator:dev .
# docker buildx build --platform linux/amd64,linux/arm64 --target agent -t registry.example.com/hawser/agent:dev --push .

ARG GO_VERSION=1.26
ARG DEBIAN_RELEASE=trixie

# The compiler runs on the builder's platform and compiles for the image's.
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION}-${DEBIAN_RELEASE} AS build
ARG VERSION=v0.1.0-dev
ARG TARGETOS
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
COPY api api
COPY pkg pkg
RUN go mod download
COPY cmd cmd
COPY config config
COPY internal internal
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath \
    -ldflags "-s -w -X github.com/hawser-io/hawser/internal/version.Version=${VERSION}" \
    -o /out/ ./cmd/operator ./cmd/manager ./cmd/agent

# The operator speaks to the API server and to nothing else: one static program.
FROM scratch AS operator
ARG VERSION=v0.1.0-dev
LABEL org.opencontainers.image.title="Hawser operator" \
    org.opencontainers.image.description="Installs Hawser and keeps it as its VolumeManager asks for." \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.vendor="The Hawser Authors" \
    org.opencontainers.image.source="https://github.com/hawser-io/hawser" \
    org.opencontainers.image.url="https://github.com/hawser-io/hawser"
COPY LICENSE /licenses/LICENSE
COPY --from=build /out/operator /operator
USER 65532:65532
ENTRYPOINT ["/operator"]

# The manager speaks to the API server and to nothing else: one static program.
FROM scratch AS manager
ARG VERSION=v0.1.0-dev
LABEL org.opencontainers.image.title="Hawser manager" \
    org.opencontainers.image.description="Attaches and detaches volumes." \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.vendor="The Hawser Authors" \
    org.opencontainers.image.source="https://github.com/hawser-io/hawser" \
    org.opencontainers.image.url="https://github.com/hawser-io/hawser"
COPY LICENSE /licenses/LICENSE
COPY --from=build /out/manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]

# The agent mounts, and runs the tools that look at, make, check and grow filesystems.
FROM debian:${DEBIAN_RELEASE}-slim AS agent
ARG VERSION=v0.1.0-dev
LABEL org.opencontainers.image.title="Hawser agent" \
    org.opencontainers.image.description="Stages, publishes and expands volumes on a node." \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.vendor="The Hawser Authors" \
    org.opencontainers.image.source="https://github.com/hawser-io/hawser" \
    org.opencontainers.image.url="https://github.com/hawser-io/hawser"
COPY hack/images/packages /tmp/packages
RUN apt-get update \
    && xargs apt-get install --yes --no-install-recommends < /tmp/packages \
    && rm -rf /var/lib/apt/lists/* /tmp/packages
COPY LICENSE /licenses/LICENSE
COPY --from=build /out/agent /usr/local/bin/agent
ENTRYPOINT ["/usr/local/bin/agent"]
