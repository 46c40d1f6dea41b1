//go:build integration

package hyperconverged

import (
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// What is set of disks, by the annotation or by the spec, and is taken back, goes from the CDI object.
func TestWhatIsSetOfDisksIsTakenBack(t *testing.T) {
	c, err := client.New(apiserver.Start(t, apiserver.Only(t, "components/crds", "cdi.kubevirt.io")...), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	set := `[{"op":"add","path":"/spec/config/importProxy","value":{"HTTPProxy":"http://proxy:80"}},` +
		`{"op":"add","path":"/spec/config/podResourceRequirements/limits/cpu","value":"1"},` +
		`{"op":"add","path":"/spec/config/filesystemOverhead/storageClass/fast","value":"0.1"}]`
	for _, patch := range []string{"", set, ""} {
		hco := &hcov1.HyperConverged{}
		hco.Annotations = map[string]string{hcov1.AnnotationCDIPatch: patch}
		objects, err := operands(hco, testOptions().Values())
		if err != nil {
			t.Fatal(err)
		}
		if err := apply.Object(t.Context(), c, objects[1], names.ManagerOperator); err != nil {
			t.Fatalf("with patch %q: %v", patch, err)
		}
		cdi := &cdiv1.CDI{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: names.CDIName}, cdi); err != nil {
			t.Fatal(err)
		}
		config := cdi.Spec.Config
		limited := config.PodResourceRequirements != nil && len(config.PodResourceRequirements.Limits) > 0
		if want := patch != ""; (config.ImportProxy != nil) != want || limited != want || (len(config.FilesystemOverhead.StorageClass) > 0) != want {
			t.Errorf("with patch %q the CDI object has %+v", patch, config)
		}
	}
}
