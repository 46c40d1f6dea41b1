package volumemigration

import (
	"maps"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// machine is a VM of a generation whose volumes root and data are on claims.
func machine(t *testing.T, generation int64, strategy virtv1.UpdateVolumesStrategy, root, data string, note Note) *virtv1.VirtualMachine {
	t.Helper()
	vm := fixture.VM("shop", "web", fixture.Claim("root", root), fixture.Claim("data", data), fixture.ContainerDisk("x"))
	vm.Spec.Template.Spec.Volumes[2].Name = "image"
	vm.UID, vm.Generation = "vm-uid", generation
	if strategy != "" {
		vm.Spec.UpdateVolumesStrategy = &strategy
	}
	if err := note.Put(vm); err != nil {
		t.Fatal(err)
	}
	return vm
}

func TestAChangedClaimIsNotedWithWhereItsDiskIs(t *testing.T) {
	const copied, replaced = virtv1.UpdateVolumesStrategyMigration, virtv1.UpdateVolumesStrategyReplacement
	begun := Note{"root": {"a", 2}}
	forged := Note{"root": {"secret", 1}, "data": {"secret", 1}}
	for name, c := range map[string]struct {
		before   Note
		strategy virtv1.UpdateVolumesStrategy
		old, is  [2]string
		said     Note
		want     Note
	}{
		"nothing is changed":                   {nil, copied, [2]string{"a", "d"}, [2]string{"a", "d"}, nil, nil},
		"a claim is changed":                   {nil, copied, [2]string{"a", "d"}, [2]string{"b", "d"}, nil, Note{"root": {"a", 5}}},
		"two are":                              {nil, copied, [2]string{"a", "d"}, [2]string{"b", "e"}, nil, Note{"root": {"a", 5}, "data": {"d", 5}}},
		"it is replaced":                       {nil, replaced, [2]string{"a", "d"}, [2]string{"b", "d"}, nil, nil},
		"it is replaced where nothing is said": {nil, "", [2]string{"a", "d"}, [2]string{"b", "d"}, nil, nil},
		"somebody makes a note up":             {nil, copied, [2]string{"a", "d"}, [2]string{"b", "d"}, forged, Note{"root": {"a", 5}}},
		"somebody makes one up for no change":  {nil, copied, [2]string{"a", "d"}, [2]string{"a", "d"}, forged, nil},
		"something else is changed":            {begun, copied, [2]string{"b", "d"}, [2]string{"b", "d"}, begun, begun},
		"somebody leaves the note out":         {begun, copied, [2]string{"b", "d"}, [2]string{"b", "d"}, nil, begun},
		"it is changed once more":              {begun, copied, [2]string{"b", "d"}, [2]string{"c", "d"}, begun, Note{"root": {"a", 5}}},
		"another is changed, too":              {begun, copied, [2]string{"b", "d"}, [2]string{"b", "e"}, begun, Note{"root": {"a", 2}, "data": {"d", 5}}},
		"it goes back":                         {begun, copied, [2]string{"b", "d"}, [2]string{"a", "d"}, begun, nil},
		"it goes back with the strategy":       {begun, replaced, [2]string{"b", "d"}, [2]string{"a", "d"}, begun, nil},
		"it is replaced by a third":            {begun, replaced, [2]string{"b", "d"}, [2]string{"c", "d"}, begun, nil},
	} {
		t.Run(name, func(t *testing.T) {
			old := machine(t, 4, copied, c.old[0], c.old[1], c.before)
			got, err := Next(old, machine(t, 4, c.strategy, c.is[0], c.is[1], c.said))
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
}

func TestWhatTheControllerChangesIsNotCopied(t *testing.T) {
	const copied = virtv1.UpdateVolumesStrategyMigration
	begun := Note{"root": {"a", 2}, "data": {"d", 3}}
	old := machine(t, 4, copied, "b", "e", begun)
	for name, c := range map[string]struct {
		vm   *virtv1.VirtualMachine
		want Note
	}{
		"it has done nothing":      {machine(t, 4, copied, "b", "e", begun), begun},
		"it has copied one":        {machine(t, 4, copied, "b", "e", Note{"data": {"d", 3}}), Note{"data": {"d", 3}}},
		"it has restored one":      {machine(t, 4, copied, "restored", "e", begun), Note{"data": {"d", 3}}},
		"it has copied all":        {machine(t, 4, copied, "b", "e", nil), nil},
		"it asks for another copy": {machine(t, 4, copied, "b", "e", Note{"root": {"x", 9}}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Kept(old, c.vm)
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
}

func TestAVMThatIsMadeAgainGoesOnWithItsCopies(t *testing.T) {
	vm := machine(t, 0, virtv1.UpdateVolumesStrategyMigration, "b", "d", Note{"root": {"a", 7}})
	if got, err := Regained(vm); err != nil || !maps.Equal(got, Note{"root": {"a", 0}}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAVolumeThatIsNewOrGoneIsNotCopied(t *testing.T) {
	old := machine(t, 4, virtv1.UpdateVolumesStrategyMigration, "b", "d", Note{"root": {"a", 2}})
	vm := machine(t, 4, virtv1.UpdateVolumesStrategyMigration, "b", "d", nil)
	vm.Spec.Template.Spec.Volumes[0].Name = "other"
	if got, err := Next(old, vm); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	old.Annotations[AnnotationNote] = "no JSON"
	if _, err := Next(old, vm); err == nil {
		t.Error("a note that cannot be read is forgotten")
	}
}
