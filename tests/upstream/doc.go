// Package upstream tests Slipway through KubeVirt's own client library, with the types and the wire
// format that programs of the field are built on. It needs a cluster with Slipway installed:
//
//	KUBECONFIG=… SLIPWAY_TINY_IMAGE=… go test -C tests/upstream -tags=e2e ./...
//
// where the image is that of the test guest tiny, as bin/images.json names it.
package upstream
