// A module of its own: KubeVirt's client needs other versions of Kubernetes' modules than Slipway does.
module github.com/slipway-vm/slipway/tests/upstream

go 1.26.4

require (
	k8s.io/api v0.34.3
	k8s.io/apimachinery v0.34.3
	kubevirt.io/api v1.9.0
	kubevirt.io/client-go v1.9.0 // what is tested: KubeVirt's own client against Slipway
)

// As kubevirt.io/client-go has them: what it requires is not published by those numbers.
replace (
	github.com/openshift/api => github.com/openshift/api v0.0.0-20210105115604-44119421ec6b
	k8s.io/kube-openapi => k8s.io/kube-openapi v0.0.0-20250710124328-f3f2b991d03b
)
