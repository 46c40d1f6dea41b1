package rename

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	vm := &metav1.ObjectMeta{Annotations: map[string]string{AnnotationTarget: "shop"}}
	if Target(vm) != "shop" {
		t.Errorf("the target is %q", Target(vm))
	}
	Failed(vm.Annotations, "shop", "VirtualMachine shop exists: it is another's")
	if target, why := Failure(vm); target != "shop" || why != "VirtualMachine shop exists: it is another's" || Target(vm) != "" {
		t.Errorf("failed to become %q: %q", target, why)
	}
	want := Origin{Name: "web", UID: "1-2-3"}
	vm.Annotations[AnnotationOrigin] = want.String()
	if got, ok := OriginOf(vm); !ok || got != want {
		t.Errorf("it comes from %+v, %v", got, ok)
	}
}

func TestWhatIsNoRecordIsNone(t *testing.T) {
	for _, said := range []string{"", "web", "/1", "web/"} {
		vm := &metav1.ObjectMeta{Annotations: map[string]string{AnnotationOrigin: said}}
		if got, ok := OriginOf(vm); ok {
			t.Errorf("%q names %+v", said, got)
		}
	}
	if target, why := Failure(&metav1.ObjectMeta{}); target != "" || why != "" {
		t.Errorf("nothing failed to become %q: %q", target, why)
	}
}
