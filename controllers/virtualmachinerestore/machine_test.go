package virtualmachinerestore

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// contentOf is the content of a VM with a disk of each kind, of which all are taken.
func contentOf(options ...fixture.VMOption) *snapshotv1.VirtualMachineSnapshotContent {
	dv := fixture.DataVolume("shop", "root", "1Gi")
	dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "images", Name: "debian"}}
	dv.Spec.Storage.Resources.Requests = nil
	options = append([]fixture.VMOption{
		fixture.Template("root", dv),
		fixture.Disk("shared", virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "shared", Hotpluggable: true}}),
		fixture.Claim("data", "data"),
		fixture.Disk("dump", virtv1.VolumeSource{MemoryDump: &virtv1.MemoryDumpVolumeSource{}}),
		fixture.CloudInit("#cloud-config"),
	}, options...)
	vm := fixture.VM("shop", "web", options...)
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: vm.Spec}
	for _, volume := range []string{"root", "shared", "data", "dump"} {
		claim := snapshotv1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: volume}}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, snapshotv1.VolumeBackup{
			VolumeName: volume, VolumeSnapshotName: new("of-" + volume), PersistentVolumeClaim: claim,
		})
	}
	return content
}

func restoreTo(name string) *snapshotv1.VirtualMachineRestore {
	restore := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r", UID: "1-2"}}
	restore.Spec.Target.Name = name
	return restore
}

func TestEveryDiskBecomesAClaim(t *testing.T) {
	content := contentOf()
	restores, err := restoresOf(restoreTo("web"), content)
	if err != nil || len(restores) != 3 {
		t.Fatalf("got %+v, %v", restores, err)
	}
	spec := restoredSpec(content, restores)
	volumes := spec.Template.Spec.Volumes
	if len(volumes) != 4 {
		t.Fatalf("the volumes are %+v", volumes)
	}
	if volumes[0].DataVolume.Name != "restore-1-2-root" || spec.DataVolumeTemplates[0].Name != "restore-1-2-root" {
		t.Errorf("the VM's own DataVolume is %+v, of %s", volumes[0], spec.DataVolumeTemplates[0].Name)
	}
	if c := volumes[1].PersistentVolumeClaim; c == nil || c.ClaimName != "restore-1-2-shared" || !c.Hotpluggable {
		t.Errorf("the DataVolume of others is %+v", volumes[1])
	}
	if volumes[2].PersistentVolumeClaim.ClaimName != "restore-1-2-data" || volumes[3].CloudInitNoCloud == nil {
		t.Errorf("the others are %+v", volumes[2:])
	}
	if content.Spec.Source.VirtualMachine.Spec.DataVolumeTemplates[0].Name != "root" {
		t.Error("the content was changed")
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		overrides []snapshotv1.VolumeRestoreOverride
		want      string
	}{
		"one for two volumes":    {[]snapshotv1.VolumeRestoreOverride{{VolumeName: "root", RestoreName: "x"}, {VolumeName: "data", RestoreName: "x"}}, "both be named x"},
		"of a volume not taken":  {[]snapshotv1.VolumeRestoreOverride{{VolumeName: "cloudinit", RestoreName: "x"}}, "volume cloudinit, which is not in the snapshot"},
		"none that objects have": {[]snapshotv1.VolumeRestoreOverride{{VolumeName: "root", RestoreName: "A b"}}, "cannot be named A b"},
	} {
		t.Run(name, func(t *testing.T) {
			restore := restoreTo("web")
			restore.Spec.VolumeRestoreOverrides = c.overrides
			if _, err := restoresOf(restore, contentOf()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestANewVMIsHaltedAndPatched(t *testing.T) {
	inferred := func(vm *virtv1.VirtualMachine) {
		vm.Spec.RunStrategy, vm.Spec.Running = nil, new(true)
		vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{InferFromVolume: "root"}
	}
	content := contentOf(inferred)
	content.Spec.Source.VirtualMachine.Status.InstancetypeRef = &virtv1.InstancetypeStatusRef{Name: "u1.small", Kind: "VirtualMachineClusterInstancetype"}
	restore := restoreTo("copy")
	restore.Spec.Patches = []string{`{"op":"add","path":"/spec/template/spec/hostname","value":"copy"}`}
	vm, err := newMachine(restore, content, nil, new(content.UID))
	if err != nil {
		t.Fatal(err)
	}
	if *vm.Spec.Running || vm.Spec.RunStrategy != nil || vm.Spec.Template.Spec.Hostname != "copy" || vm.Spec.Template.Spec.Domain.Firmware != nil {
		t.Errorf("the VM is %+v", vm.Spec)
	}
	if m := vm.Spec.Instancetype; m.Name != "u1.small" || m.Kind != "VirtualMachineClusterInstancetype" || m.InferFromVolume != "" {
		t.Errorf("its instance type is %+v", m)
	}
	if vm.Name != "copy" || vm.Annotations[AnnotationLast] != "r-1-2" {
		t.Errorf("it is %+v", vm.ObjectMeta)
	}
	for _, patches := range [][]string{{`{"op":"remove","path":"/spec/nowhere"}`}, {`{"op":"replace","path":"/metadata/name","value":"x"}`}, {`nothing`}} {
		restore.Spec.Patches = patches
		if _, err := newMachine(restore, content, nil, nil); err == nil || !strings.Contains(err.Error(), "spec.patches") {
			t.Errorf("%v: %v", patches, err)
		}
	}
}

// The DataVolume of a template that leaves the size to what it clones has it, for it clones nothing.
func TestADataVolumeSaysFromWhatItIsFilled(t *testing.T) {
	content := contentOf()
	restores, err := restoresOf(restoreTo("web"), content)
	if err != nil {
		t.Fatal(err)
	}
	claim := newClaim(restoreTo("web"), content, restores[0], new(resource.MustParse("1Gi")))
	spec := restoredSpec(content, restores)
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "vm"}, Spec: spec}
	dv := newDataVolume(restoreTo("web"), vm, &vm.Spec.DataVolumeTemplates[0], restores[0], *claim.Spec.Resources.Requests.Storage())
	if dv.Name != claim.Name || dv.Spec.Source != nil || dv.Spec.Storage.DataSource.Name != "of-root" || dv.Spec.Storage.Resources.Requests.Storage().String() != "2Gi" {
		t.Errorf("the DataVolume is %+v", dv.Spec)
	}
	if claim.Annotations[annotationPopulated] != dv.Name || !metav1.IsControlledBy(dv, vm) {
		t.Errorf("the claim is %+v", claim.ObjectMeta)
	}
}
