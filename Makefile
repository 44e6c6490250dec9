# Hawser. `make help` lists the targets; `make demo` and `make test` do all their own set-up.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -o pipefail -ec

VERSION ?= v0.1.0-dev
LDFLAGS := -X github.com/hawser-io/hawser/internal/version.Version=$(VERSION)
CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/tools
# The local cluster's programs are linked or built here; KUBEBUILDER_ASSETS, if set, spares the control plane's build.
ASSETS := $(CACHE)/bin
DIR ?= /tmp/hawser-local
# Who attaches in `make test-e2e`: hawser, or upstream to compare with.
E2E_ATTACH ?= hawser

# The revision that `make test-upgrade` upgrades from.
FROM ?= HEAD~1

# make test KUBERNETES_VERSION=1.35 runs what needs an API server on that minor version (hack/localcluster/kubernetes).
KUBERNETES_VERSION ?=

# Versions of tools: go.mod and hack/tools/go.mod. Versions of the local cluster's programs: hack/versions.env.
CONTROLLER_GEN := go tool controller-gen
GOLANGCI_LINT := $(TOOLS)/golangci-lint
# Tools of the operator framework. Each has a module of its own, because their requirements clash.
OPERATOR_SDK := $(TOOLS)/operator-sdk
OPM := $(TOOLS)/opm
# Tools of Prometheus, likewise.
PROMTOOL := $(TOOLS)/promtool
DEADCODE := go tool -modfile=hack/tools/go.mod deadcode
KUBE_STATE_METRICS := $(TOOLS)/kube-state-metrics
HELM := $(TOOLS)/helm
KREW := $(TOOLS)/krew
HUGO := $(TOOLS)/hugo
COSIGN := $(TOOLS)/cosign
SYFT := $(TOOLS)/syft
ACTIONLINT := $(TOOLS)/actionlint
# The architectures of make images.
export ARCHITECTURES ?= amd64 arm64
OLM_TAGS := containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper
# What comes before /operator, /manager, /agent and /bundle in the names of the images.
IMAGES ?= hawser
# The tag of the images that config/ names.
TAG ?= dev
# Every package of the main module and of those that it requires from this repository: api and pkg/volumes.
PACKAGES := github.com/hawser-io/hawser/...
# Every Go module of the repository.
MODULES := $(sort $(patsubst %/go.mod,%,$(wildcard ./go.mod */go.mod */*/go.mod */*/*/go.mod)))

# Nothing here talks to the cluster of whoever runs it. Where KUBECONFIG is unset, clients read the home directory's.
export KUBECONFIG := /dev/null
export KUBERC := off
unexport KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT KUBERNETES_MASTER

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*##"} /^[a-zA-Z_-]+:.*##/ {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## Build bin/operator, bin/manager, bin/agent and bin/kubectl-hawser.
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/operator ./cmd/operator
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/manager ./cmd/manager
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/agent ./cmd/agent
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/kubectl-hawser ./cmd/kubectl-hawser

.PHONY: generate
generate: ## Generate deepcopy code.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...

.PHONY: manifests
manifests: ## Generate CRDs and roles into config/ and charts/.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=hawser-manager paths=./internal/controller/... output:rbac:dir=config/rbac/manager
	$(CONTROLLER_GEN) rbac:roleName=hawser-agent paths=./internal/agent/... output:rbac:dir=config/rbac/agent
	$(CONTROLLER_GEN) rbac:roleName=hawser-operator paths=./internal/operator/... output:rbac:dir=config/operator
	cp config/crd/bases/*.yaml charts/hawser/files/crds/
	cp config/operator/role.yaml charts/hawser/files/

.PHONY: rules
rules: ## Make the alerting rules and the list of metrics from their sources.
	go run ./hack/rules
	go run ./hack/metrics
	go run ./hack/dashboard

.PHONY: check-rules
check-rules: $(PROMTOOL) ## Check the alerting rules, and run their tests.
	$(PROMTOOL) check rules --lint=all --lint-fatal config/prometheus/hawser.yaml config/prometheus/hawser-observer.yaml
	$(PROMTOOL) test rules config/prometheus/hawser_test.yaml config/prometheus/hawser-observer_test.yaml

.PHONY: check-kube-state-metrics
check-kube-state-metrics: $(KUBE_STATE_METRICS) control-plane ## Run kube-state-metrics on its file, against an API server.
	KUBEBUILDER_ASSETS="$(ASSETS)" go test -count=1 ./test/monitoring

.PHONY: bundle
bundle: $(OPERATOR_SDK) $(OPM) kubectl ## Make the OLM bundle in bundle/ and the file-based catalog in catalog/.
	KUBECTL=$(ASSETS)/kubectl OPERATOR_SDK=$(OPERATOR_SDK) OPM=$(OPM) hack/bundle.sh write $(VERSION) $(IMAGES) .

.PHONY: check-bundle
check-bundle: $(OPERATOR_SDK) $(OPM) kubectl ## Validate bundle and catalog, and the upgrade to a next release.
	KUBECTL=$(ASSETS)/kubectl OPERATOR_SDK=$(OPERATOR_SDK) OPM=$(OPM) hack/bundle.sh check $(VERSION) $(IMAGES) .

.PHONY: images
images: ## Write the images as OCI archives into .cache/images, without a container tool. TAG, IMAGES and ARCHITECTURES.
	@hack/setup-packages.sh --images
	hack/images.sh $(VERSION) $(IMAGES) $(TAG) $(CACHE)/images

.PHONY: pin-packages
pin-packages: ## Pin the Debian packages of the agent's image by their digests, as Debian has them now. A release takes those with PACKAGES=pinned or snapshot.
	@hack/setup-packages.sh --images
	for architecture in amd64 arm64; do \
		PACKAGES=pin hack/images/root.sh $$architecture $(CACHE)/images/root-$$architecture.tar; done

.PHONY: release
release: $(OPERATOR_SDK) $(OPM) $(HELM) $(SYFT) $(if $(COSIGN_KEY)$(COSIGN_KEYLESS),$(COSIGN)) kubectl ## Write binaries, install.yaml, chart, images, bundle, catalog, SBOMs, provenance and checksums of VERSION to dist/. COSIGN_KEY=FILE signs.
	@hack/setup-packages.sh --release
	KUBECTL=$(ASSETS)/kubectl OPERATOR_SDK=$(OPERATOR_SDK) OPM=$(OPM) HELM=$(HELM) SYFT=$(SYFT) \
		COSIGN=$(COSIGN) CACHE=$(CACHE) hack/release.sh $(VERSION) $(IMAGES) dist

.PHONY: verify-release
verify-release: $(OPERATOR_SDK) $(OPM) $(HELM) $(KREW) $(if $(COSIGN_PUBLIC_KEY),$(COSIGN)) ## Check dist/ as a downloader would, without a network: checksums, programs, plugin by krew, chart, images, bundle, provenance. COSIGN_PUBLIC_KEY=FILE: and the signature. SAME_AS=DIR: and that another build has the same bytes.
	OPERATOR_SDK=$(OPERATOR_SDK) OPM=$(OPM) HELM=$(HELM) KREW=$(KREW) COSIGN=$(COSIGN) \
		hack/verify-release.sh $(VERSION) dist $(SAME_AS)

.PHONY: kubectl
kubectl:
	@hack/build-control-plane.sh kubectl

$(OPERATOR_SDK): hack/tools/olm/operator-sdk/go.mod hack/tools/olm/operator-sdk/go.sum
	@echo "building operator-sdk, once"
	cd hack/tools/olm/operator-sdk && CGO_ENABLED=0 go build -tags $(OLM_TAGS) -ldflags "-s -w -X \
		github.com/operator-framework/operator-sdk/internal/version.Version=$$(go list -m -f '{{.Version}}' \
		github.com/operator-framework/operator-sdk)" -o $@ github.com/operator-framework/operator-sdk/cmd/operator-sdk

$(OPM): hack/tools/olm/opm/go.mod hack/tools/olm/opm/go.sum
	@echo "building opm, once"
	cd hack/tools/olm/opm && CGO_ENABLED=0 go build -tags $(OLM_TAGS) -ldflags "-s -w" -o $@ \
		github.com/operator-framework/operator-registry/cmd/opm

$(PROMTOOL): hack/tools/promtool/go.mod hack/tools/promtool/go.sum
	@echo "building promtool, once"
	cd hack/tools/promtool && CGO_ENABLED=0 go build -tags remove_all_sd -ldflags "-s -w" -o $@ \
		github.com/prometheus/prometheus/cmd/promtool

$(KUBE_STATE_METRICS): hack/tools/kube-state-metrics/go.mod hack/tools/kube-state-metrics/go.sum
	@echo "building kube-state-metrics, once"
	cd hack/tools/kube-state-metrics && CGO_ENABLED=0 go build -ldflags "-s -w" -o $@ k8s.io/kube-state-metrics/v2

$(KREW): hack/tools/krew/go.mod hack/tools/krew/go.sum
	@echo "building krew, once"
	cd hack/tools/krew && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $@ sigs.k8s.io/krew/cmd/krew

.PHONY: cosign
cosign: $(COSIGN) ## Build cosign, which signs releases. It takes minutes, so the tests that need it are left out without.

COSIGN_VERSION := sigs.k8s.io/release-utils/version.gitVersion
$(COSIGN): hack/tools/release/cosign/go.mod hack/tools/release/cosign/go.sum
	@echo "building cosign, once"
	cd hack/tools/release/cosign && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X $(COSIGN_VERSION)=$$(go list -m \
		-f '{{.Version}}' github.com/sigstore/cosign/v3)" -o $@ github.com/sigstore/cosign/v3/cmd/cosign

$(SYFT): hack/tools/release/syft/go.mod hack/tools/release/syft/go.sum
	@echo "building syft, once"
	cd hack/tools/release/syft && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$$(go list -m \
		-f '{{.Version}}' github.com/anchore/syft | tr -d v)" -o $@ github.com/anchore/syft/cmd/syft

$(ACTIONLINT): hack/tools/actionlint/go.mod hack/tools/actionlint/go.sum
	@echo "building actionlint, once"
	cd hack/tools/actionlint && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $@ \
		github.com/rhysd/actionlint/cmd/actionlint

# The version of Kubernetes that helm template and helm lint assume, as helm's own Makefile sets it.
HELM_KUBERNETES := helm.sh/helm/v3/pkg/chartutil.k8sVersion
$(HELM): hack/tools/helm/go.mod hack/tools/helm/go.sum
	@echo "building helm, once"
	cd hack/tools/helm && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X $(HELM_KUBERNETES)Major=1 -X \
		$(HELM_KUBERNETES)Minor=$$(go list -m -f '{{.Version}}' k8s.io/client-go | cut -d . -f 2)" -o $@ \
		helm.sh/helm/v3/cmd/helm

$(HUGO): hack/tools/hugo/go.mod hack/tools/hugo/go.sum
	@echo "building hugo, once"
	cd hack/tools/hugo && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $@ github.com/gohugoio/hugo

.PHONY: site
site: $(HUGO) ## Write the documentation as a site to dist/site, for VERSION (or VERSION=main), and fail on links that lead nowhere.
	hack/site.sh $(HUGO) $(VERSION) dist/site

##@ Check

.PHONY: test
ifeq ($(KUBERNETES_VERSION),)
test: packages control-plane $(KUBE_STATE_METRICS) $(HELM) ## Run what a commit needs, with -race where goroutines meet. KUBERNETES_VERSION=1.35: the tests of the API server, on that version.
	KUBEBUILDER_ASSETS="$(ASSETS)" hack/test.sh
else
test: packages
	@hack/build-control-plane.sh --kubernetes $(KUBERNETES_VERSION)
	hack/test.sh --kubernetes $(KUBERNETES_VERSION)
endif

.PHONY: test-long
test-long: packages control-plane $(HELM) $(HUGO) ## Run what takes long: all explorations, 1,000 seeds of the simulation, outages of the API server, the commands of the documentation, and what is cheap to build of a release.
	KUBEBUILDER_ASSETS="$(ASSETS)" hack/test.sh --long

.PHONY: test-race
test-race: packages control-plane ## Run the tests of whole programs with the race detector in them.
	KUBEBUILDER_ASSETS="$(ASSETS)" hack/test.sh --race

# The clusters of test-e2e wait more than they compute, and test-long computes.
.PHONY: test-all
test-all: ## Run what takes long: test-long beside test-e2e (root, Linux).
	$(MAKE) -j 2 test-long test-e2e

.PHONY: test-e2e
test-e2e: control-plane $(KUBE_STATE_METRICS) ## Run pods on two nodes with real kubelets and containerd, and make every alert fire (root, Linux). E2E_ATTACH=upstream compares.
	@hack/setup-packages.sh --containers
	@hack/setup-packages.sh --monitoring
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
ifeq ($(E2E_ATTACH),upstream)
	HAWSER_TEST_E2E=upstream hack/test-e2e.sh $(DIR)-e2e kubelet
else
	$(MAKE) images ARCHITECTURES=$$(go env GOARCH)
	hack/test-e2e.sh $(DIR)-e2e kubelet images alerts
endif

# Pods with filesystems and block volumes, inline volumes, and a volume that changes its node with and without a kubelet.
PODS := PodsWriteAndRead|StatefulSetMoves|BlockVolumeOfAPodAndAnIntent|ThroughAnInlineVolume|StoppedKubeletOnlyOnce
.PHONY: test-pods
test-pods: control-plane ## Run a few of the pods of test-e2e, in some minutes (root, Linux). RUN=Directory runs others.
	@hack/setup-packages.sh --containers
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
	HAWSER_TEST_E2E=hawser HAWSER_TEST_E2E_DIR=$(DIR)-pods unshare --mount \
		go test -v -count=1 -timeout 30m -run '$(or $(RUN),$(PODS))' ./test/kubelet

.PHONY: bench-fence
bench-fence: control-plane ## Measure how soon a dead machine's volume is elsewhere: by a fence, and by upstream's taint and timer (root, Linux; 15 minutes).
	@hack/setup-packages.sh --containers
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
	@for attach in hawser upstream; do \
		HAWSER_TEST_E2E=$$attach HAWSER_TEST_E2E_PLAIN=1 HAWSER_TEST_E2E_DIR=$(DIR)-fence KUBEBUILDER_ASSETS="$(ASSETS)" unshare --mount \
			go test -v -count=1 -timeout 30m -run 'Fenced|UpstreamsTimer' ./test/kubelet || exit 1; done

.PHONY: test-machines
test-machines: control-plane ## Run the agent on virtual machines that lose disks and power (root, QEMU). RUN=Power runs some of the tests, FULL=1 cuts the power at each step of the agent too.
	@hack/setup-packages.sh --machines
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
	KUBEBUILDER_ASSETS="$(ASSETS)" HAWSER_TEST_MACHINES=$(DIR)-machines HAWSER_TEST_MACHINES_FULL=$(FULL) \
		go test -v -count=1 -parallel 2 -timeout $(if $(FULL),12h,40m) -run '$(RUN)' ./test/machine

.PHONY: test-machines-undetected
test-machines-undetected: control-plane ## Show that the tests of faults fail on virtual machines with an agent that detects none (root, QEMU; half an hour). RUN=NFS runs some.
	@hack/setup-packages.sh --machines
	KUBEBUILDER_ASSETS="$(ASSETS)" HAWSER_TEST_MACHINES=$(DIR)-machines hack/undetected-faults.sh '$(RUN)'

.PHONY: test-alerts
test-alerts: control-plane $(KUBE_STATE_METRICS) ## Make alerts fire and resolve, with a real Prometheus on a local cluster (root, Linux).
	@hack/setup-packages.sh --monitoring
	HAWSER_TEST_ALERTS=$(DIR)-alerts go test -v -count=1 -timeout 25m ./test/alerts

.PHONY: test-verdict
test-verdict: programs ## Break what pods and claims need in a cluster without Hawser, and do what the plugin advises (root, Linux).
	@hack/setup-packages.sh --containers
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
	HAWSER_TEST_VERDICT=$(DIR)-verdict go test -v -count=1 -timeout 40m -parallel 12 ./test/verdict

.PHONY: test-advice
test-advice: programs ## Bring a cluster with Hawser into the situations of the findings, and do what the plugin advises (root, Linux). RUN=Sets runs some.
	@hack/setup-packages.sh --containers
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
	$(MAKE) images ARCHITECTURES=$$(go env GOARCH)
	KUBEBUILDER_ASSETS="$(ASSETS)" HAWSER_TEST_ADVICE=$(DIR)-advice \
		go test -v -count=1 -timeout 30m -parallel 64 -run '$(RUN)' ./test/advice

.PHONY: test-upgrade
test-upgrade: control-plane ## Upgrade from FROM (a revision, by default the one before) and back, with volumes in use (root, Linux).
	@hack/setup-packages.sh --containers
	@hack/setup-packages.sh --images
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
	earlier=$$(hack/upgrade.sh $(FROM)) && HAWSER_TEST_UPGRADE=$$earlier HAWSER_TEST_E2E=hawser \
		HAWSER_TEST_E2E_DIR=$(DIR)-upgrade go test -v -count=1 -timeout 30m -run '^TestUpgrade' ./test/images

.PHONY: test-release
test-release: control-plane $(OPERATOR_SDK) $(OPM) $(HELM) $(SYFT) $(KREW) ## Make two releases, install each way with their files, upgrade and remove (root, Linux). The last commit counts.
	@hack/setup-packages.sh --containers
	@hack/setup-packages.sh --release
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
	KUBECTL=$(ASSETS)/kubectl OPERATOR_SDK=$(OPERATOR_SDK) OPM=$(OPM) HELM=$(HELM) SYFT=$(SYFT) KREW=$(KREW) \
		hack/releases.sh $(CACHE)/releases
	HAWSER_TEST_RELEASE=$(CACHE)/releases HAWSER_TEST_E2E=hawser HAWSER_TEST_E2E_DIR=$(DIR)-release \
		go test -v -count=1 -timeout 30m -run '^TestRelease' ./test/images

.PHONY: test-karpenter
test-karpenter: control-plane ## Remove nodes with volumes by the real Karpenter.
	@hack/build-control-plane.sh karpenter
	KUBEBUILDER_ASSETS="$(ASSETS)" HAWSER_TEST_KARPENTER=$$(cd hack/localcluster/karpenter && go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter) \
		go test -v -count=1 -timeout 15m -run '^TestKarpenter' ./test/manager

.PHONY: mutants
mutants: packages control-plane ## Hold careless changes to the code that keeps data safe against the tests (root, hours). MUTANTS_ARGS="-only plan.go -sample 5".
	KUBEBUILDER_ASSETS="$(ASSETS)" go run ./hack/mutants $(MUTANTS_ARGS)

.PHONY: lint
lint: $(GOLANGCI_LINT) $(ACTIONLINT) ## Run golangci-lint and deadcode on the code, actionlint on the workflows, kube-api-linter on the API, and hack/house on sizes and prose.
	$(GOLANGCI_LINT) run ./...
	cd hack/localcluster && $(GOLANGCI_LINT) run --config ../../.golangci.yml ./...
	cd hack/images && $(GOLANGCI_LINT) run --config ../../.golangci.yml ./...
	cd api && $(GOLANGCI_LINT) run --config ../.golangci.yml ./...
	cd pkg/volumes && $(GOLANGCI_LINT) run --config ../../.golangci.yml ./...
	cd examples/operator && $(GOLANGCI_LINT) run --config ../../.golangci.yml ./...
	cd api && $(GOLANGCI_LINT) run --config ../.golangci-api.yml ./...
	@echo "looking for functions that nothing calls"
	@dead=$$($(DEADCODE) -filter '/hawser/(api|cmd|internal|pkg)' ./cmd/... ./hack/... && \
		$(DEADCODE) -test -filter '/hawser/(api|cmd|internal|pkg|hack|test)' $(PACKAGES)); \
	if test -n "$$dead"; then echo "$$dead"; exit 1; fi
	$(ACTIONLINT) -shellcheck= -pyflakes=
	go run ./hack/house

$(GOLANGCI_LINT): hack/tools/go.mod hack/tools/go.sum hack/tools/golangci-lint/main.go
	@echo "building golangci-lint, once"
	cd hack/tools && go build -o $@ ./golangci-lint

.PHONY: verify
verify: generate manifests rules ## Regenerate, tidy, format, vet and lint; fail on any difference.
	for module in $(MODULES); do go -C $$module mod tidy; done
	@hack/build-control-plane.sh --agree
	gofmt -l -w api cmd examples internal pkg test hack
	go vet $(PACKAGES)
	$(MAKE) lint
	$(MAKE) bundle check-bundle check-rules
	@hack/check-clean.sh

##@ Run

.PHONY: packages
packages: ## Install what the tests need of the system (e2fsprogs, xfsprogs, ...), as root where apt is.
	@hack/setup-packages.sh || test $$(id -u) -ne 0

.PHONY: control-plane
control-plane: ## Build the local cluster's programs from modules: etcd, kube-apiserver, csi-attacher, csi-provisioner, ...
	@hack/build-control-plane.sh

.PHONY: programs
programs: control-plane build bin/localcluster
	go build -o bin/csi-loop ./test/csiloop/cmd/csi-loop

.PHONY: bin/localcluster
bin/localcluster:
	cd hack/localcluster && go build -o ../../bin/localcluster .

.PHONY: local-up
local-up: packages programs ## Start a local cluster with Hawser on two nodes below DIR; prints what to do with it. OPERATOR=1: by the operator, from images, on real kubelets.
ifneq ($(OPERATOR),)
	@hack/setup-packages.sh --containers
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
	$(MAKE) images ARCHITECTURES=$$(go env GOARCH)
endif
	@go run ./test/local --dir $(DIR) $(if $(OPERATOR),--operator)

.PHONY: local-down
local-down: bin/localcluster ## Take that cluster down: processes, mounts, loop devices and DIR; prints what it takes.
	@bin/localcluster discard --dir $(DIR)

.PHONY: demo
demo: packages programs ## Show the main job on a local cluster, and pods where kubelets can run (root, Linux). KEEP=1 leaves it running.
	@hack/setup-packages.sh --containers && hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr || \
		echo "without the programs of real kubelets"
	@KEEP=$(KEEP) go run ./test/demo --dir $(DIR)-demo

.PHONY: soak
soak: packages control-plane ## Random requests and random trouble for MINUTES in each mode (root, Linux). SEED repeats one, MODE is Coexist or Replace.
	@KEEP=$(KEEP) go run ./test/soak --dir $(DIR)-soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(MODE),--mode $(MODE))

.PHONY: bench
bench: packages programs ## Measure attach and detach of many volumes against upstream; BENCH_ARGS="--part=node" measures one node, "--part=pods" pods on real kubelets (root), "--part=doctor" kubectl hawser doctor.
ifneq ($(findstring part=pods,$(BENCH_ARGS)),)
	@hack/setup-packages.sh --containers
	@hack/build-control-plane.sh kubelet containerd containerd-shim-runc-v2 ctr
endif
	@go run ./test/bench --dir $(DIR)-bench $(BENCH_ARGS)
