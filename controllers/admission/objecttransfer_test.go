package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/admission/clone"
	"github.com/slipway-vm/slipway/controllers/admission/objecttransfer"
)

// transferBase is an ObjectTransfer that is admitted; cases change it.
const transferBase = `
apiVersion: cdi.kubevirt.io/v1beta1
kind: ObjectTransfer
metadata: {name: x}
spec:
  source: {kind: DataVolume, namespace: one, name: disk, requiredAnnotations: {a: b}}
  target: {namespace: two}
`

func TestBadObjectTransfersAreRefusedWithThePath(t *testing.T) {
	for name, c := range map[string]struct {
		old, replacement string
		want             []string
	}{
		"nothing wrong":                   {"two", "three", nil},
		"a claim":                         {"kind: DataVolume, ", "kind: PersistentVolumeClaim, apiVersion: v1, ", nil},
		"another name":                    {"{namespace: two}", "{name: other}", nil},
		"no target":                       {"{namespace: two}", "{}", []string{"spec.target"}},
		"its source":                      {"{namespace: two}", "{namespace: one}", []string{"spec.target"}},
		"its source, said in full":        {"{namespace: two}", "{namespace: one, name: disk}", []string{"spec.target"}},
		"another kind":                    {"kind: DataVolume, ", "kind: Secret, ", []string{"spec.source.kind", "spec.source.kind"}},
		"a version of another kind":       {"kind: DataVolume, ", "kind: DataVolume, apiVersion: v1, ", []string{"spec.source.apiVersion"}},
		"no name":                         {"name: disk", `name: ""`, []string{"spec.source.name"}},
		"no namespace":                    {"namespace: one", `namespace: ""`, []string{"spec.source.namespace"}},
		"a target that is no namespace":   {"namespace: two", "namespace: Two", []string{"spec.target.namespace"}},
		"a target of no name":             {"{namespace: two}", "{namespace: two, name: a/b}", []string{"spec.target.name"}},
		"a transfer that it is a part of": {"  target:", "  parentName: another\n  target:", []string{"spec.parentName"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(transferBase, c.old) {
				t.Fatalf("the base has no %q", c.old)
			}
			response := ask(t, "/objecttransfers-validate", []byte(strings.Replace(transferBase, c.old, c.replacement, 1)), nil, "jane")
			if got := refusedPaths(response); response.Allowed != (c.want == nil) || !slices.Equal(got, c.want) {
				t.Errorf("refused %v, want %v: %+v", got, c.want, response.Result)
			}
		})
	}
}

func TestAnObjectTransferKeepsItsSpec(t *testing.T) {
	other := []byte(strings.Replace(transferBase, "namespace: two", "namespace: three", 1))
	if response := ask(t, "/objecttransfers-validate", other, []byte(transferBase), "jane"); response.Allowed || !strings.Contains(response.Result.Message, "ObjectTransfer spec is immutable") {
		t.Errorf("a change of the target: %+v", response)
	}
	if response := ask(t, "/objecttransfers-validate", []byte(strings.Replace(transferBase, "name: x", "name: x, labels: {a: b}", 1)), []byte(transferBase), "jane"); !response.Allowed {
		t.Errorf("a change of labels: %+v", response.Result)
	}
}

// taken is a cluster in which everything of one kind is there.
type taken struct {
	empty
	kind client.Object
}

func (c taken) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	_, claim := object.(*corev1.PersistentVolumeClaim)
	if _, want := c.kind.(*corev1.PersistentVolumeClaim); claim == want {
		return nil
	}
	return c.empty.Get(ctx, key, object, options...)
}

func TestATransfersTargetIsFree(t *testing.T) {
	for _, c := range []struct {
		kind    string
		there   client.Object
		refused bool
	}{
		{"DataVolume", &cdiv1.DataVolume{}, true},
		{"DataVolume", &corev1.PersistentVolumeClaim{}, true},
		{"PersistentVolumeClaim", &corev1.PersistentVolumeClaim{}, true},
		{"PersistentVolumeClaim", &cdiv1.DataVolume{}, false},
	} {
		spec := &cdiv1.ObjectTransferSpec{
			Source: cdiv1.TransferSource{Kind: c.kind, Namespace: "one", Name: "disk"}, Target: cdiv1.TransferTarget{Namespace: new("two")},
		}
		errs, err := objecttransfer.Free(t.Context(), taken{kind: c.there}, spec, field.NewPath("spec"))
		if err != nil || (len(errs) > 0) != c.refused || c.refused && !strings.Contains(errs[0].Error(), `ObjectTransfer target "two/disk" already exists`) {
			t.Errorf("a %s where there is a %T: %v, %v", c.kind, c.there, errs, err)
		}
	}
}

// TestATransferredCloneIsMade lets virt-controller make the DataVolume of a transfer, whatever it was cloned from: it has its
// disk, and gets no leave to clone.
func TestATransferredCloneIsMade(t *testing.T) {
	const controller = "system:serviceaccount:slipway:virt-controller"
	judge := clone.Judge{Reader: empty{}, Controller: controller}
	for user, admitted := range map[string]bool{controller: true, "jane": false} {
		dv := &cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: new("golden"), Name: "gone"}}}
		dv.Annotations = map[string]string{"cdi.kubevirt.io/objectTransferName": "x", "slipway-vm.github.io/clone-authorized": "golden/base"}
		err := judge.Authorize(t.Context(), dv, "two", authenticationv1.UserInfo{Username: user})
		if (err == nil) != admitted || dv.Annotations["slipway-vm.github.io/clone-authorized"] != "" {
			t.Errorf("%s: %v, and the DataVolume has %v", user, err, dv.Annotations)
		}
	}
}
