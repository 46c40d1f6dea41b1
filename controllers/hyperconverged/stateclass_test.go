package hyperconverged

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

func TestTheClassOfVMsStateIsPatchedIntoKubeVirt(t *testing.T) {
	hco := &hcov1.HyperConverged{}
	hco.Name = "kubevirt-hyperconverged"
	hco.Annotations = map[string]string{hcov1.AnnotationKubeVirtPatch: `[{"op":"add","path":"/spec/configuration/vmStateStorageClass","value":"fast"}]`}
	objects, err := operands(hco, testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := unstructured.NestedString(objects[0].Object, "spec", "configuration", "vmStateStorageClass")
	if err != nil || got != "fast" {
		t.Errorf("vmStateStorageClass: got %q (%v), want fast", got, err)
	}
}
