module github.com/slipway-vm/slipway

go 1.26.4

require (
	github.com/aws/aws-sdk-go-v2 v1.42.0 // the signer of requests to S3, of the module that has the clients in others
	github.com/aws/smithy-go v1.27.2 // paths as that signer wants them
	github.com/container-storage-interface/spec v1.13.0 // the CSI driver of node storage speaks it
	github.com/containers/image/v5 v5.36.2 // images of registries, as sources of disks; hack: pushes them
	github.com/diskfs/go-diskfs v1.9.4 // cloud-init discs: ISO 9660 with Rock Ridge
	github.com/fsnotify/fsnotify v1.9.0 // sockets and folders are watched, not polled
	github.com/go-jose/go-jose/v4 v4.1.4 // tokens of uploads: JSON Web Tokens, signed with PS256
	github.com/google/go-containerregistry v0.22.1 // digests of tags in registries; hack: writes image archives without a daemon
	github.com/google/nftables v0.3.0 // masquerade rules in pods, without the nft program
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // consoles and screens of VMs, in the version of client-go
	github.com/hashicorp/go-multierror v1.1.1
	github.com/insomniacslk/dhcp v0.0.0-20260901064844-234b97448fae // leases for guests
	github.com/klauspost/compress v1.20.3 // zstd and fast gzip of disks
	github.com/kubernetes-csi/csi-test/v5 v5.6.0 // tests only: the conformance suite of CSI drivers
	github.com/kubernetes-csi/external-snapshotter/client/v8 v8.7.0 // types of VolumeSnapshot
	github.com/onsi/ginkgo/v2 v2.34.0
	github.com/onsi/gomega v1.44.0
	github.com/openshift/api v0.0.0-20240924155631-232984653385
	github.com/robfig/cron/v3 v3.0.1 // schedules of DataImportCrons
	github.com/spf13/cobra v1.10.2 // subcommands
	github.com/tektoncd/pipeline v1.15.0
	github.com/ulikunitz/xz v0.5.15 // xz of disks, in Go
	github.com/vishvananda/netlink v1.3.1 // tap devices and addresses
	github.com/vishvananda/netns v0.0.5 // network namespaces of pods
	golang.org/x/crypto v0.57.0 // SSH of tasks
	golang.org/x/net v0.59.0 // which addresses a proxy is for, in the words of the environment
	golang.org/x/oauth2 v0.36.0 // tokens of service accounts for Google Cloud Storage
	golang.org/x/sync v0.23.0 // errgroup
	golang.org/x/sys v0.48.0 // Linux system calls
	golang.org/x/term v0.46.0 // the terminal of `virtctl console`, which every key goes through
	golang.org/x/time v0.15.0 // the pace of downloads and of requests
	google.golang.org/grpc v1.83.1 // CSI and device plugins are gRPC
	k8s.io/api v0.37.1
	k8s.io/apiextensions-apiserver v0.37.1
	k8s.io/client-go v0.37.1
	k8s.io/klog/v2 v2.140.0
	k8s.io/kubelet v0.37.1
	k8s.io/utils v0.0.0-20260626114624-be93311217bd
	kubevirt.io/api v1.9.0
	kubevirt.io/containerized-data-importer-api v1.66.0
	libvirt.org/go/libvirt v1.11010.0
	libvirt.org/go/libvirtxml v1.11010.0 // the domain XML as types
	sigs.k8s.io/controller-runtime v0.25.2
	sigs.k8s.io/controller-tools v0.23.0 // hack: generates CRDs and deep copies
	sigs.k8s.io/sig-storage-lib-external-provisioner/v13 v13.0.0 // provisioning of claims
	sigs.k8s.io/yaml v1.6.0 // strict YAML
)

require (
	github.com/BurntSushi/toml v1.5.0 // registries.conf, of which nothing may be passed over
	github.com/docker/distribution v2.8.3+incompatible // errors of registries, in the types that containers/image gives them
	github.com/evanphx/json-patch/v5 v5.9.11 // the jsonpatch annotations of HyperConverged
	github.com/go-logr/logr v1.4.3 // the logger of controller-runtime
	github.com/google/cel-go v0.29.2 // conditions of wait-for-vmi-status
	github.com/google/uuid v1.6.0 // firmware identities
	github.com/klauspost/pgzip v1.2.6 // parallel gzip of uploaded disks
	github.com/moby/sys/mountinfo v0.7.2 // reads what is mounted
	github.com/opencontainers/go-digest v1.0.0 // digests of layers
	github.com/opencontainers/image-spec v1.1.1 // types of an image's configuration
	github.com/openshift/custom-resource-status v1.1.2 // conditions of the CDI object are of its types
	github.com/prometheus/client_golang v1.24.0 // metrics
	github.com/prometheus/client_model v0.6.2 // metrics as they are told
	github.com/spf13/pflag v1.0.10 // flags of `virtctl create vm`
	github.com/yuin/gopher-lua v1.1.2 // tests only: Argo CD's health checks run in it
	github.com/zeebo/blake3 v0.2.4 // digests of disks, in half of the time of SHA-256
	golang.org/x/tools v0.51.0 // hack: loads packages to generate from
	gomodules.xyz/jsonpatch/v2 v2.5.0 // what the webhook for the pods of tasks changes
	google.golang.org/protobuf v1.36.12 // messages of the same
	k8s.io/apimachinery v0.37.1
	k8s.io/pod-security-admission v0.37.1 // tests only: the restricted policy against the tasks' pods
	knative.dev/pkg v0.0.0-20260622140654-39ebae2ee2dc // conditions of Tekton objects are of its types
	kubevirt.io/controller-lifecycle-operator-sdk/api v0.2.4 // CDI and HyperConverged use its types
	sigs.k8s.io/kustomize/api v0.21.1 // tests only: builds the kustomizations that are shipped
	sigs.k8s.io/kustomize/kyaml v0.21.1 // tests only: files of the same
	sigs.k8s.io/randfill v1.0.0 // tests only: random objects
)

require (
	cel.dev/expr v0.25.2 // indirect
	cloud.google.com/go/compute/metadata v0.9.0 // indirect
	github.com/Masterminds/semver/v3 v3.4.0 // indirect
	github.com/VividCortex/ewma v1.2.0 // indirect
	github.com/acarl005/stripansi v0.0.0-20180116102854-5a71ef0e047d // indirect
	github.com/antlr4-go/antlr/v4 v4.13.1 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/blang/semver/v4 v4.0.0 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/containers/libtrust v0.0.0-20230121012942-c1716e8a8d01 // indirect
	github.com/containers/ocicrypt v1.2.1 // indirect
	github.com/containers/storage v1.59.1 // indirect
	github.com/cyberphone/json-canonicalization v0.0.0-20241213102144-19d51d7fe467 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/distribution/reference v0.6.0 // indirect
	github.com/djherbis/times v1.6.0 // indirect
	github.com/docker/cli v29.7.2+incompatible // indirect
	github.com/docker/docker v28.3.2+incompatible // indirect
	github.com/docker/docker-credential-helpers v0.9.5 // indirect
	github.com/docker/go-connections v0.7.0 // indirect
	github.com/docker/go-units v0.5.0 // indirect
	github.com/emicklei/go-restful/v3 v3.13.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.2 // indirect
	github.com/go-errors/errors v1.4.2 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/go-openapi/jsonreference v1.0.0 // indirect
	github.com/go-openapi/swag v0.27.1 // indirect
	github.com/go-openapi/swag/cmdutils v0.27.1 // indirect
	github.com/go-openapi/swag/conv v0.27.1 // indirect
	github.com/go-openapi/swag/fileutils v0.27.1 // indirect
	github.com/go-openapi/swag/jsonutils v0.27.1 // indirect
	github.com/go-openapi/swag/loading v0.27.1 // indirect
	github.com/go-openapi/swag/mangling v0.27.1 // indirect
	github.com/go-openapi/swag/netutils v0.27.1 // indirect
	github.com/go-openapi/swag/pools v0.27.1 // indirect
	github.com/go-openapi/swag/stringutils v0.27.1 // indirect
	github.com/go-openapi/swag/typeutils v0.27.1 // indirect
	github.com/go-openapi/swag/yamlutils v0.27.1 // indirect
	github.com/go-task/slim-sprig/v3 v3.0.0 // indirect
	github.com/gobuffalo/flect v1.0.3 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/google/gnostic-models v0.7.1 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/pprof v0.0.0-20260402051712-545e8a4df936 // indirect
	github.com/gorilla/mux v1.8.1 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.29.0 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/josharian/native v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/klauspost/cpuid/v2 v2.0.12 // indirect
	github.com/kubernetes-csi/csi-lib-utils v0.22.0 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/mattn/go-sqlite3 v1.14.28 // indirect
	github.com/mdlayher/netlink v1.7.3-0.20250113171957-fbb4dce95f42 // indirect
	github.com/mdlayher/socket v0.5.0 // indirect
	github.com/miekg/dns v1.1.68 // indirect
	github.com/miekg/pkcs11 v1.1.1 // indirect
	github.com/moby/spdystream v0.5.1 // indirect
	github.com/moby/sys/capability v0.4.0 // indirect
	github.com/moby/sys/user v0.4.0 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/monochromegane/go-gitignore v0.0.0-20200626010858-205db1a8cc00 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/opencontainers/runtime-spec v1.2.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.26 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/proglottis/gpgme v0.1.4 // indirect
	github.com/prometheus/common v0.70.1 // indirect
	github.com/prometheus/otlptranslator v1.0.0 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/secure-systems-lab/go-securesystemslib v0.11.0 // indirect
	github.com/sigstore/fulcio v1.6.6 // indirect
	github.com/sigstore/protobuf-specs v0.5.0 // indirect
	github.com/sigstore/sigstore v1.10.8 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	github.com/smallstep/pkcs7 v0.1.1 // indirect
	github.com/stefanberger/go-pkcs11uri v0.0.0-20230803200340-78284954bff6 // indirect
	github.com/u-root/uio v0.0.0-20230220225925-ffce2a382923 // indirect
	github.com/vbatts/tar-split v0.12.1 // indirect
	github.com/vbauerster/mpb/v8 v8.10.2 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	github.com/xlab/treeprint v1.2.0 // indirect
	github.com/youmark/pkcs8 v0.0.0-20240726163527-a2c0da244d78 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.44.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc v1.44.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp v1.44.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.44.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc v1.44.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.44.0 // indirect
	go.opentelemetry.io/otel/exporters/prometheus v0.66.0 // indirect
	go.opentelemetry.io/otel/exporters/stdout/stdouttrace v1.44.0 // indirect
	go.opentelemetry.io/otel/metric v1.44.0 // indirect
	go.opentelemetry.io/otel/sdk v1.44.0 // indirect
	go.opentelemetry.io/otel/sdk/metric v1.44.0 // indirect
	go.opentelemetry.io/otel/trace v1.44.0 // indirect
	go.opentelemetry.io/proto/otlp v1.10.0 // indirect
	go.uber.org/mock v0.6.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20260410095643-746e56fc9e2f // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
	k8s.io/apiserver v0.37.1 // indirect
	k8s.io/component-base v0.37.1 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	k8s.io/streaming v0.37.1 // indirect
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // indirect
)
