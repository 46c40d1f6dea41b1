module github.com/slipway-vm/slipway/hack/cluster

go 1.26.0

require (
	github.com/hashicorp/go-multierror v1.1.1 // errors that are collected while cleaning up
	github.com/spf13/cobra v1.10.2 // the command line, as in the main module
	golang.org/x/sync v0.22.0 // errgroup
	golang.org/x/sys v0.48.0 // pidfd, mount, flock
	sigs.k8s.io/yaml v1.6.0 // manifests
)

require (
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
)
