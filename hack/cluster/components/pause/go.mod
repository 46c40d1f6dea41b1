module github.com/slipway-vm/slipway/hack/cluster/components/pause

go 1.26.0
