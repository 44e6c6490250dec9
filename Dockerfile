# docker build --target operator -t hawser/operator:dev .
# docker build --target manager -t hawser/manager:dev .
# docker build --target agent -t hawser/agent:dev .

ARG GO_VERSION=1.26
ARG DEBIAN_RELEASE=bookworm

FROM golang:${GO_VERSION}-${DEBIAN_RELEASE} AS build
ARG VERSION=v0.1.0-dev
ARG TARGETOS
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY config config
COPY internal internal
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath \
    -ldflags "-s -w -X github.com/hawser-io/hawser/internal/version.Version=${VERSION}" \
    -o /out/ ./cmd/operator ./cmd/manager ./cmd/agent

# The operator speaks to the API server and to nothing else: one static program.
FROM scratch AS operator
COPY --from=build /out/operator /operator
USER 65532:65532
ENTRYPOINT ["/operator"]

# The manager speaks to the API server and to nothing else: one static program.
FROM scratch AS manager
COPY --from=build /out/manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]

# The agent mounts, and runs the tools that look at, make, check and grow filesystems.
FROM debian:${DEBIAN_RELEASE}-slim AS agent
RUN apt-get update \
    && apt-get install --yes --no-install-recommends btrfs-progs e2fsprogs mount util-linux xfsprogs \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/agent /usr/local/bin/agent
ENTRYPOINT ["/usr/local/bin/agent"]
