package virtualmachine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
)

func ofVM(vm *virtv1.VirtualMachine, object metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	object.OwnerReferences = append(object.OwnerReferences, *metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind))
	return &object
}

func claim(labels map[string]string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Name: "claim", Labels: labels},
	}
}

// two are a VM and the one that takes its place.
func two() (web, shop *virtv1.VirtualMachine) {
	web, shop = machine(), machine()
	shop.Name, shop.UID = "shop", "shop-uid"
	return web, shop
}

func TestADiskIsHandedOverAndBack(t *testing.T) {
	web, shop := two()
	object := ofVM(web, claim(map[string]string{virtv1.CreatedByLabel: "vm-uid", names.LabelState: "web", "app": "x"}))
	handed := handover{from: web, to: shop, keep: true}.changed(object)
	if handed == nil || !metav1.IsControlledBy(handed, shop) || len(handed.OwnerReferences) != 2 {
		t.Fatalf("handed over: %+v", handed)
	}
	if first := handed.OwnerReferences[0]; first.UID != web.UID || first.Controller != nil || first.BlockOwnerDeletion != nil {
		t.Errorf("the old owner is %+v, want it to be one that holds the disk and no more", first)
	}
	if handed.Labels[virtv1.CreatedByLabel] != "shop-uid" || handed.Labels[names.LabelState] != "shop" || handed.Labels["app"] != "x" {
		t.Errorf("its labels are %v", handed.Labels)
	}
	if again := (handover{from: web, to: shop, keep: true}).changed(handed); again != nil {
		t.Errorf("it is handed over twice: %+v", again)
	}
	back := handover{from: shop, to: web}.changed(handed)
	if back == nil || !metav1.IsControlledBy(back, web) || len(back.OwnerReferences) != 1 || *back.OwnerReferences[0].BlockOwnerDeletion != true {
		t.Fatalf("handed back: %+v", back)
	}
	if back.Labels[virtv1.CreatedByLabel] != "vm-uid" || back.Labels[names.LabelState] != "web" {
		t.Errorf("its labels are %v", back.Labels)
	}
	if again := (handover{from: shop, to: web}).changed(back); again != nil {
		t.Errorf("it is handed back twice: %+v", again)
	}
}

func TestWhatIsOthersStaysTheirs(t *testing.T) {
	web, shop := two()
	third := machine()
	third.Name, third.UID = "third", "third-uid"
	for name, c := range map[string]struct {
		object *metav1.PartialObjectMetadata
		want   bool
	}{
		"another VM's disk":                 {ofVM(third, claim(nil)), false},
		"another VM's state of the name":    {ofVM(third, claim(map[string]string{names.LabelState: "web"})), false},
		"a disk of nobody":                  {new(claim(nil)), false},
		"the state that a user brought":     {new(claim(map[string]string{names.LabelState: "web"})), true},
		"the state kept for an earlier VM":  {new(claim(map[string]string{names.LabelState: "web", keep.LabelFor: "earlier-uid"})), false},
		"the state that is kept for it":     {new(claim(map[string]string{names.LabelState: "web", keep.LabelFor: "vm-uid"})), true},
		"a state of another name":           {new(claim(map[string]string{names.LabelState: "third"})), false},
		"what the VM owns beside a third":   {&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "third-uid"}, {UID: "vm-uid"}}}}, true},
		"an object with a label of its own": {&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{virtv1.CreatedByLabel: "vm-uid"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := handover{from: web, to: shop, keep: true}.changed(c.object)
			if (changed != nil) != c.want {
				t.Errorf("got %+v, want a change: %v", changed, c.want)
			}
			if changed != nil && len(changed.OwnerReferences) == 3 && (changed.OwnerReferences[2].UID != "shop-uid" || changed.OwnerReferences[2].Controller != nil) {
				t.Errorf("the owners are %+v", changed.OwnerReferences)
			}
		})
	}
}
