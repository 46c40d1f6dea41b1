package virtualmachinetemplaterequest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/catalog/template"
	"github.com/slipway-vm/slipway/controllers/admission/virtualmachine"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/guestid"
	"github.com/slipway-vm/slipway/tests/fixture"
)

const script = "#!/bin/sh\necho ${NAME} of ${HOME} $${X} ${{Y}} > /etc/motd\n"

// newRequest makes request debian of namespace catalog, for VM web of namespace builds.
func newRequest(changes ...func(*vmtemplatev1beta1.VirtualMachineTemplateRequestSpec)) *vmtemplatev1beta1.VirtualMachineTemplateRequest {
	request := &vmtemplatev1beta1.VirtualMachineTemplateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "catalog", Name: "debian", UID: "1f3a5b7c-2"}}
	request.Spec.VirtualMachineRef = vmtemplatev1beta1.VirtualMachineReference{Namespace: "builds", Name: "web"}
	for _, change := range changes {
		change(&request.Spec)
	}
	return request
}

func labelled(spec *vmtemplatev1beta1.VirtualMachineTemplateRequestSpec) {
	spec.TemplateName, spec.TemplateLabels = "golden", map[string]string{"os": "debian"}
}

// hasAName gives a VM all that a guest is known by.
func hasAName(vm *virtv1.VirtualMachine) {
	template := vm.Spec.Template
	template.ObjectMeta.Annotations = map[string]string{guestid.AnnotationName: "before", "note": "stays"}
	template.Spec.Domain.Devices.Interfaces[0].MacAddress = "02:00:00:00:00:01"
	template.Spec.Domain.Firmware = &virtv1.Firmware{UUID: "11111111-1111-4111-8111-111111111111", Serial: "s-1"}
	template.Spec.Domain.Chassis = &virtv1.Chassis{Serial: "c-1", Asset: "rack"}
}

// dumped gives a VM a memory dump, and makes its disk data one that was plugged in.
func dumped(vm *virtv1.VirtualMachine) {
	for i := range vm.Spec.Template.Spec.Volumes {
		if claim := vm.Spec.Template.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			claim.Hotpluggable = true
		}
	}
	vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, virtv1.Volume{Name: "dump", VolumeSource: virtv1.VolumeSource{
		MemoryDump: &virtv1.MemoryDumpVolumeSource{PersistentVolumeClaimVolumeSource: virtv1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "dump"},
		}},
	}})
}

// taken is what a snapshot has of a VM: disks of the volumes.
func taken(vm *virtv1.VirtualMachine, volumes ...string) *snapshotv1.VirtualMachineSnapshotContent {
	content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: "content"}}
	content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name}, Spec: vm.Spec}
	for _, volume := range volumes {
		backup := snapshotv1.VolumeBackup{VolumeName: volume, VolumeSnapshotName: new("of-" + volume)}
		backup.PersistentVolumeClaim.Spec.StorageClassName = new("fast")
		backup.PersistentVolumeClaim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, backup)
	}
	return content
}

// The template has copies of the disks, the guest's script as it was, and nothing that the first guest is known by.
func TestTemplateOfAVM(t *testing.T) {
	vm := fixture.VM("builds", "web",
		fixture.ContainerDisk("x/y:z"), fixture.Template("system", fixture.DataVolume("builds", "web-system", "1Gi")), fixture.Claim("data", "data"),
		fixture.CloudInit(script), hasAName, dumped)
	content := taken(vm, "system", "data", "dump", "persistent-state-for-web")
	made, err := newTemplate(newRequest(labelled), &vm.Spec, copied(content))
	if err != nil {
		t.Fatal(err)
	}
	made.TypeMeta = metav1.TypeMeta{APIVersion: kindTemplate.GroupVersion().String(), Kind: kindTemplate.Kind}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(made)
	if err != nil {
		t.Fatal(err)
	}
	delete(tree, "status")
	data, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Golden(t, "testdata/template.yaml", data)
	second := processed(t, tree, "web2")
	if errs := virtualmachine.Validate(second, virtualmachine.Referred{}, field.NewPath("spec")); len(errs) > 0 {
		t.Errorf("the VM is refused: %v", errs.ToAggregate())
	}
	volumes := second.Spec.Template.Spec.Volumes
	if got := volumes[3].CloudInitNoCloud.UserData; got != script {
		t.Errorf("the script is %q", got)
	}
	if second.Name != "web2" || volumes[1].DataVolume.Name != "web2-system" || !volumes[2].DataVolume.Hotpluggable || len(volumes) != 4 || len(second.Spec.DataVolumeTemplates) != 2 {
		t.Errorf("the VM is %+v", second)
	}
	if was := vm.Spec.Template.Spec.Domain.Firmware.Serial; was != "s-1" {
		t.Errorf("the first VM is changed: %q", was)
	}
}

// processed is the VM that comes of a template.
func processed(t *testing.T, made map[string]any, name string) *virtv1.VirtualMachine {
	t.Helper()
	tmpl, err := template.FromVirtualMachineTemplate(&unstructured.Unstructured{Object: made})
	if err != nil {
		t.Fatal(err)
	}
	out, err := template.Process(tmpl, map[string]string{parameterName: name})
	if err != nil {
		t.Fatal(err)
	}
	vm := &virtv1.VirtualMachine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(out.Objects[0].Object, vm, true); err != nil {
		t.Fatal(err)
	}
	return vm
}

func TestDisk(t *testing.T) {
	content := taken(fixture.VM("builds", "web", fixture.Claim("data", "data")), "data")
	dv := newDisk(newRequest(), "builds", &copied(content)[0])
	data, err := yaml.Marshal(dv)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Golden(t, "testdata/disk.yaml", data)
}

// Names of disks are those of templates and volumes, as far as there is room.
func TestDiskNames(t *testing.T) {
	long := strings.Repeat("n", 250)
	for name, want := range map[string]string{"": "debian-data-1f3a5b7c", "golden": "golden-data-1f3a5b7c", long: "template-data-1f3a5b7c"} {
		request := newRequest(func(spec *vmtemplatev1beta1.VirtualMachineTemplateRequestSpec) { spec.TemplateName = name })
		if got := diskName(request, "data"); got != want {
			t.Errorf("of template %q it is %s, want %s", name, got, want)
		}
	}
	if got := snapshotName(types.UID("1f3a")); got != "tmp-template-1f3a" {
		t.Errorf("the snapshot is %s", got)
	}
}
