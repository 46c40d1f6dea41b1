# Slipway. `make help` lists what can be done.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
TAGS    := containers_image_openpgp,exclude_graphdriver_btrfs,containers_image_docker_daemon_stub,containers_image_storage_stub,netgo,osusergo
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BIN     := $(CURDIR)/bin
# Programs of images and tests of all kinds share what is compiled: the same flags, and of the
# standard library the parts in Go alone.
export GOFLAGS := -tags=$(TAGS) -trimpath -buildvcs=false
# Compilers and linkers end before their garbage is in anyone's way: collecting it takes a tenth of their time. What lives
# longer, tests and linters, collects, though seldom.
export GOGC ?= off
export GOMEMLIMIT ?= 2GiB
# Tests link without tables for debuggers; lint vets them.
gotest  = $(GO) test -exec 'env GOGC=400 GOMEMLIMIT=4GiB' -vet=off -ldflags="-s -w"

comma := ,

# quiet runs tests and keeps of their output what names an outcome, and failures whole.
quiet = set +e; $(1) 2>&1 | grep -Ev '^(=== (RUN|PAUSE|CONT|NAME)|\s+--- PASS|\?.*no test files|\s+testing: warning)'; exit $${PIPESTATUS[0]}

# CLUSTER=local starts this machine's own cluster; CLUSTER=existing uses the one that
# KUBECONFIG names, starts nothing, and needs REGISTRY, from which that cluster can pull.
CLUSTER  ?= local
REGISTRY ?=
# How long fuzz looks for machines that fail.
FUZZTIME ?= 10m
export CLUSTER REGISTRY VERSION
# What make runs fails where a test's precondition is missing; plain `go test` skips it and says so.
export SLIPWAY_REQUIRE := 1

##@ The two that do everything
demo: deps cluster images ## Set up what is missing, run the main job on a real Kubernetes, show the result (IMAGE_URL=… for your own image)
	$(GO) run ./hack/demo $(if $(IMAGE_URL),--image-url "$(IMAGE_URL)")

test: deps ## Set up what is missing, pass all tests but those labelled thorough and those that say "not in CI", print a table of times
	$(GO) run ./hack/test

##@ Tests, one kind at a time
# Its bound is for tests that hang: in CI it runs behind the other stages, with what time they leave.
unit: deps ## Tests beside the code, golden files included (no cluster)
	$(call quiet,$(gotest) -v -timeout 45m $(if $(filter rest,$(UNIT)),$$($(GO) list ./... | grep -vxFf <($(GO) list -tags=integration$(comma)$(TAGS) $(integrated))),./...) $(UNIT_ARGS))
	$(call quiet,cd hack/cluster && $(gotest) -v ./...)
	$(call quiet,cd hack/cluster/components/triggers && $(gotest) -v ./...)
	$(call quiet,cd tests/promql && $(gotest) -v ./...)

# The packages with integration tests: of the API, and of what a node has one of, its networks, devices and
# libvirt. `make integration` runs all their tests, PART=api or PART=node some; `make unit UNIT=rest` runs those of the others.
integrated-api  := ./tests/integration/... ./tests/fixture/apiserver ./internal/stepcache ./internal/verbosity ./controllers/... ./tasks/... ./pipelines/... ./cmd/virtctl/...
integrated-node := ./runtime/handler/... ./runtime/launcher ./runtime/network/... ./runtime/hostpath ./tests/fuzz
integrated      := $(integrated-api) $(integrated-node)

# Each package of the API's has a server of its own, and waits for it much of the time, so that three run side by side; a node there is one of.
integration: deps ## Tests against a real API server and etcd, network namespaces and devices, no node
	$(call quiet,KUBEBUILDER_ASSETS=$$($(GO) run -C hack/cluster . build | tail -1) $(gotest) -v -tags=integration$(comma)$(TAGS) -timeout 60m -p $(if $(filter api,$(PART)),3,1) \
		$(if $(PART),$(integrated-$(PART)),$(integrated)) $(INTEGRATION_ARGS))

e2e: cluster images e2e-suite ## Tests on a real cluster with real guests, also those labelled thorough, which make test leaves out (E2E=lifecycle for one suite)

e2e-suite: # on a cluster that has the images already
	$(gotest) -v -tags=e2e,$(TAGS) -timeout 70m -p 1 ./tests/e2e/$(if $(E2E),$(E2E)/,)... $(E2E_ARGS)

e2e-installer: cluster images ## Debian's own installer in a VM, from an empty disk to a published image (hours under emulation; not in CI)
	$(gotest) -v -tags=e2e_installer,e2e,$(TAGS) -timeout 6h -p 1 ./tests/e2e/installer $(E2E_ARGS)

chaos: cluster images ## Kills of every component and process at random moments, over VMs that write (KILLS=200; SEED=… for the same kills again; not in CI)
	KILLS=$${KILLS:-200} $(gotest) -v -tags=e2e,$(TAGS) -timeout 5h -p 1 ./tests/e2e/faults -ginkgo.v -ginkgo.label-filter=chaos $(E2E_ARGS)

e2e-upgrade: cluster images ## A VM of a former build under this one: make e2e-upgrade FROM=<commit>, after make cluster-reset (builds the former one; not in CI)
	FROM=$(FROM) $(gotest) -v -tags=e2e_upgrade,e2e,$(TAGS) -timeout 70m -p 1 ./tests/e2e/upgrade $(E2E_ARGS)

bench: cluster images ## The numbers of the design, measured side by side
	@hack/deps isal pigz # decoders that imports are compared with
	$(gotest) -tags=e2e,$(TAGS) -timeout 60m -run '^$$' -bench . -benchtime 1x ./tests/bench/... $(BENCH_ARGS)

fuzz: deps ## Objects made at random against admission, and machines against domain builder and libvirt: make fuzz FUZZTIME=1h
	$(gotest) -run '^$$' -fuzz FuzzObjects -fuzztime $(FUZZTIME) -parallel 2 ./tests/fuzz $(FUZZ_ARGS)
	$(gotest) -tags=integration$(comma)$(TAGS) -run '^$$' -fuzz FuzzDefine -fuzztime $(FUZZTIME) -parallel 2 ./tests/fuzz $(FUZZ_ARGS)

# The packages that read what users and servers send, and those that must survive a kill at any moment.
parsers := ./importer/image ./importer/image/xz ./importer/image/deflate ./importer/archive ./importer/source
kills   := ./importer ./runtime/hostpath/pool

corpus: deps ## Bad images and kills of imports and clones, as many as make test has no time for, then each fuzzer for FUZZTIME (SEED=… for the same again; not in CI)
	SLIPWAY_CORPUS=1 SEED=$(SEED) $(gotest) -count=1 -timeout 3h $(kills) $(parsers)
	for package in $(parsers); do for fuzzer in $$($(GO) test -list '^Fuzz' $$package | grep ^Fuzz); do \
		$(gotest) -run '^$$' -fuzz "^$$fuzzer$$" -fuzztime $(FUZZTIME) -parallel 2 $$package; done; done

# It knows of all packages at once: within 4 GiB a sixth of its time would go into collecting garbage.
lint: export GOMEMLIMIT := 8GiB
lint: $(BIN)/golangci-lint ## Style as rules: sizes, complexity, import direction, error wrapping, contexts
	GOFLAGS="-trimpath -buildvcs=false" $(BIN)/golangci-lint run ./...
	cd hack/cluster && GOFLAGS="-trimpath -buildvcs=false" $(BIN)/golangci-lint run ./...
	cd tests/promql && GOFLAGS="-trimpath -buildvcs=false" $(BIN)/golangci-lint run ./...

verify: ## Regenerate everything that is generated and fail on a difference
	$(GO) run ./hack/generate --check

generate: ## Regenerate CRDs, deep copies, tasks' YAML and the docs' tables
	$(GO) run ./hack/generate

##@ Builds
build: ## The programs, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN)/ ./cmd/slipway ./cmd/container-disk ./cmd/virt-probe ./cmd/virtctl
	$(GO) build -trimpath -ldflags "-s -w" -o $(BIN)/ ./cmd/virt-launcher

images: deps ## The three images, as archives, and into the local cluster
	$(GO) run ./hack/images build
ifeq ($(CLUSTER),local)
	$(GO) run -C hack/cluster . load $$($(GO) run ./hack/images list --archives)
else
	$(MAKE) push
endif

push: ## Copy the images to a registry: make push REGISTRY=registry.example.com/slipway (INSECURE=1 for plain HTTP)
	@test -n "$(REGISTRY)" || { echo "REGISTRY is missing: make push REGISTRY=registry.example.com/slipway" >&2; exit 2; }
	$(GO) run ./hack/images build
	$(GO) run ./hack/images push --registry "$(REGISTRY)" $(if $(INSECURE),--insecure)

bundle: ## Tasks and pipelines as Tekton bundles in a registry: make bundle REGISTRY=registry.example.com/slipway (INSECURE=1 for plain HTTP)
	@test -n "$(REGISTRY)" || { echo "REGISTRY is missing: make bundle REGISTRY=registry.example.com/slipway" >&2; exit 2; }
	$(GO) run ./hack/bundle push --registry "$(REGISTRY)" $(if $(INSECURE),--insecure)

manifest: ## The one file that installs the operator on any cluster: bin/slipway.yaml
	$(GO) run ./hack/images build slipway slipway-launcher slipway-guestfs
	$(GO) run ./cmd/slipway manifest $$($(GO) run ./hack/images list --flags $(if $(REGISTRY),--registry $(REGISTRY))) > $(BIN)/slipway.yaml

##@ The local cluster
cluster:
ifeq ($(CLUSTER),local)
	@$(MAKE) --no-print-directory cluster-up
else
	@test -n "$(KUBECONFIG)" || { echo "CLUSTER=existing needs KUBECONFIG" >&2; exit 2; }
	@test -n "$(REGISTRY)" || { echo "CLUSTER=existing needs REGISTRY, from which the cluster can pull" >&2; exit 2; }
endif

cluster-up: ## Start it, building what is missing; safe to run twice
	$(GO) run -C hack/cluster . up

cluster-down: ## Stop it; definitions and disks stay for the next start
	$(GO) run -C hack/cluster . down

cluster-reset: ## Stop it and forget everything in it
	$(GO) run -C hack/cluster . reset

##@ House
deps: ## Debian packages that builds and tests need
	@hack/deps

clean: ## Remove bin/ and stop the local cluster; caches under ~/.cache/slipway stay
	-$(GO) run -C hack/cluster . reset
	rm -rf $(BIN)

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/golangci-lint: hack/lint/go.mod hack/lint/go.sum
	GOGC=off $(GO) build -C hack/lint -ldflags="-s -w" -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: bench build bundle chaos clean cluster cluster-down cluster-reset cluster-up corpus demo deps e2e e2e-installer e2e-suite e2e-upgrade fuzz generate help images integration lint manifest push test unit verify
