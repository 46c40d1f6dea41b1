package imageupload

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	shared "github.com/slipway-vm/slipway/internal/upload"
)

// What an earlier attempt has made gets what this one asks for.
func TestFlagsHoldForWhatIsThere(t *testing.T) {
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "disk", UID: "1"},
		Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}},
		Status:     cdiv1.DataVolumeStatus{Phase: cdiv1.WaitForFirstConsumer},
	}
	target := there(map[string]string{shared.AnnotationTarget: "", annotationContent: "kubevirt"})
	for name, object := range map[string]client.Object{"a DataVolume": dv, "a claim": target} {
		t.Run(name, func(t *testing.T) {
			c, _ := sending(options{image: "x", size: "1Gi", forceBind: true, dataSource: true}, object)
			if object == client.Object(dv) {
				c.target = &volume{upload: c.upload}
			}
			for range 2 { // the second time the DataSource is there
				if err := c.target.prepare(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			now := object.DeepCopyObject().(client.Object)
			if err := c.client.Get(t.Context(), c.key(), now); err != nil || now.GetAnnotations()[names.AnnotationBind] != "true" {
				t.Errorf("it says %v, %v", now.GetAnnotations(), err)
			}
			source := &cdiv1.DataSource{}
			if err := c.client.Get(t.Context(), c.key(), source); err != nil || source.Spec.Source.PVC.Name != "disk" {
				t.Errorf("%+v, %v", source.Spec, err)
			}
			if done, err := c.target.reached(t.Context(), ready); done || err != nil {
				t.Errorf("it is given up before it can be bound: %v", err)
			}
			source.Spec.Source.PVC.Name = "another"
			if err := c.client.Update(t.Context(), source); err != nil {
				t.Fatal(err)
			}
			if err := c.target.prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "already exists") {
				t.Errorf("a DataSource of another: %v", err)
			}
		})
	}
}

// A claim that is no target any more is bound as it would have been before.
func TestAClaimThatIsGivenUpIsNotBoundAtOnce(t *testing.T) {
	c, _ := sending(options{image: "x", noCreate: true, forceBind: true}, there(nil))
	if err := c.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.giveUp(t.Context(), false, errStalled); err == nil {
		t.Fatal("it says nothing")
	}
	now := there(nil)
	if err := c.client.Get(t.Context(), c.key(), now); err != nil || len(now.Annotations) > 0 {
		t.Errorf("the claim says %v, %v", now.Annotations, err)
	}
}
