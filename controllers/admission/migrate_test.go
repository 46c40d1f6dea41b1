package admission

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// onClaims is a VM whose volumes are copied when they are changed; cases change it.
const onClaims = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: x, namespace: prod, generation: 4}
spec:
  runStrategy: Halted
  updateVolumesStrategy: Migration
  template:
    spec:
      domain:
        memory: {guest: 1Gi}
        devices:
          disks: [{name: root, disk: {bus: virtio}}, {name: data, disk: {bus: virtio}}, {name: image, disk: {bus: virtio}}, {name: base, disk: {bus: virtio}}]
      volumes:
      - {name: root, persistentVolumeClaim: {claimName: a}}
      - {name: data, dataVolume: {name: d}}
      - {name: image, containerDisk: {image: img}}
      - {name: base, ephemeral: {persistentVolumeClaim: {claimName: e}}}
`

// virtController is who takes notes off.
const virtController = "system:serviceaccount:slipway:virt-controller"

// noted is onClaims on claim b, to which a is being copied.
func noted() string {
	note := `generation: 4, annotations: {slipway-vm.github.io/volumes-to-migrate: '{"root":{"claim":"a","generation":3}}'}}`
	return strings.NewReplacer("generation: 4}", note, "claimName: a}", "claimName: b}").Replace(onClaims)
}

// instance is a VMI in a phase with a volume on claim.
func instance(name, claim string, phase virtv1.VirtualMachineInstancePhase) *virtv1.VirtualMachineInstance {
	vm := fixture.VM("prod", name, fixture.Claim("root", claim))
	return &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Spec: vm.Spec.Template.Spec,
		Status: virtv1.VirtualMachineInstanceStatus{Phase: phase},
	}
}

func TestVolumesThatCannotBeCopiedAreRefusedWithThePath(t *testing.T) {
	const root, data, image, base = "spec.template.spec.volumes[0]", "spec.template.spec.volumes[1]", "spec.template.spec.volumes[2]", "spec.template.spec.volumes[3]"
	for name, c := range map[string]struct {
		before   string
		changes  []string
		instance *virtv1.VirtualMachineInstance
		want     []string
	}{
		"nothing is changed":                 {onClaims, nil, instance("x", "a", virtv1.Running), nil},
		"a claim":                            {onClaims, []string{"claimName: a", "claimName: b"}, nil, nil},
		"a claim becomes a DataVolume":       {onClaims, []string{"persistentVolumeClaim: {claimName: a}", "dataVolume: {name: b}"}, nil, nil},
		"the same claim as a DataVolume":     {onClaims, []string{"persistentVolumeClaim: {claimName: a}", "dataVolume: {name: a}"}, instance("x", "a", virtv1.Running), nil},
		"the VM runs":                        {onClaims, []string{"claimName: a", "claimName: b"}, instance("x", "a", virtv1.Running), []string{root}},
		"the VM is starting":                 {onClaims, []string{"claimName: a", "claimName: b"}, instance("x", "a", virtv1.Pending), []string{root}},
		"the VM has ended":                   {onClaims, []string{"claimName: a", "claimName: b"}, instance("x", "a", virtv1.Succeeded), nil},
		"the VM runs and one is replaced":    {onClaims, []string{"claimName: a", "claimName: b", "Migration", "Replacement"}, instance("x", "a", virtv1.Running), nil},
		"another VM has the source":          {onClaims, []string{"claimName: a", "claimName: b"}, instance("y", "a", virtv1.Running), []string{root}},
		"another VM has the destination":     {onClaims, []string{"claimName: a", "claimName: b"}, instance("y", "b", virtv1.Running), []string{root}},
		"another VM has something else":      {onClaims, []string{"claimName: a", "claimName: b"}, instance("y", "c", virtv1.Running), nil},
		"a claim becomes an image":           {onClaims, []string{"persistentVolumeClaim: {claimName: a}", "containerDisk: {image: other}"}, nil, []string{root}},
		"an image becomes a claim":           {onClaims, []string{"containerDisk: {image: img}", "persistentVolumeClaim: {claimName: b}"}, nil, []string{image}},
		"an image becomes another":           {onClaims, []string{"image: img", "image: other"}, nil, nil},
		"another base of an overlay":         {onClaims, []string{"claimName: e", "claimName: f"}, nil, []string{base}},
		"a shareable disk":                   {onClaims, []string{"claimName: a", "claimName: b", "{name: root, disk", "{name: root, shareable: true, disk"}, nil, []string{root}},
		"a lun":                              {onClaims, []string{"claimName: a", "claimName: b", "{name: root, disk: {bus: virtio}}", "{name: root, lun: {bus: scsi}}"}, nil, []string{root}},
		"a volume that comes and goes":       {onClaims, []string{"claimName: a", "claimName: b, hotpluggable: true"}, nil, []string{root}},
		"a claim that the VM has already":    {onClaims, []string{"claimName: a", "claimName: d"}, nil, []string{root}},
		"a claim that is an overlay's base":  {onClaims, []string{"claimName: a", "claimName: e"}, nil, []string{root}},
		"two that change places":             {onClaims, []string{"claimName: a", "claimName: d", "dataVolume: {name: d}", "dataVolume: {name: a}"}, nil, []string{root, data}},
		"a third while it is copied":         {noted(), []string{"claimName: b", "claimName: c"}, nil, nil},
		"the third has the VM's source":      {noted(), []string{"claimName: b", "claimName: c"}, instance("y", "a", virtv1.Running), []string{root}},
		"back while it is copied":            {noted(), []string{"claimName: b", "claimName: a"}, nil, nil},
		"back, and no more of this":          {noted(), []string{"claimName: b", "claimName: a", "  updateVolumesStrategy: Migration\n", ""}, nil, nil},
		"no more of this while it is copied": {noted(), []string{"  updateVolumesStrategy: Migration\n", ""}, nil, []string{"spec.updateVolumesStrategy"}},
		"a source that is still to be read":  {noted(), []string{"dataVolume: {name: d}", "dataVolume: {name: a}"}, nil, []string{data}},
		"the part that is there already":     {noted(), []string{"Migration", "Replacement", "claimName: b", "claimName: c", "dataVolume: {name: d}", "dataVolume: {name: b}"}, nil, []string{data}},
	} {
		t.Run(name, func(t *testing.T) {
			var reader client.Reader = empty{}
			if c.instance != nil {
				reader = fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(c.instance).Build()
			}
			after := strings.NewReplacer(c.changes...).Replace(c.before)
			if got := refusedPaths(askWith(t, reader, "/virtualmachines-validate", []byte(after), []byte(c.before), "jane")); !slices.Equal(got, c.want) {
				t.Errorf("refused %v, want %v", got, c.want)
			}
			if got := refusedPaths(askWith(t, reader, "/virtualmachines-validate", []byte(after), []byte(c.before), virtController)); c.want != nil && slices.Equal(got, c.want) {
				t.Errorf("virt-controller, which restores, is refused %v", got)
			}
		})
	}
}

// patches are what the webhook that completes VMs makes of a change.
func patches(t *testing.T, object string, old []byte, user string) string {
	t.Helper()
	response := ask(t, "/virtualmachines-mutate", []byte(object), old, user)
	if !response.Allowed {
		t.Fatal(response.Result.Message)
	}
	text, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNothingIsCopiedOverTheDiskOfAnotherVM(t *testing.T) {
	changed := strings.Replace(onClaims, "claimName: a}", "claimName: b}", 1)
	for claim, want := range map[string][]string{"b": {"spec.template.spec.volumes[0]"}, "a": nil, "c": nil} {
		reader := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(fixture.VM("prod", "y", fixture.Claim("root", claim))).Build()
		if got := refusedPaths(askWith(t, reader, "/virtualmachines-validate", []byte(changed), []byte(onClaims), "jane")); !slices.Equal(got, want) {
			t.Errorf("another VM has %s: refused %v, want %v", claim, got, want)
		}
	}
}

func TestWhatIsToBeCopiedIsNotedWithTheChange(t *testing.T) {
	const path = "/metadata/annotations"
	changed := strings.Replace(onClaims, "claimName: a}", "claimName: b}", 1)
	for name, c := range map[string]struct {
		before, after, user, want string
	}{
		"a change":                      {onClaims, changed, "jane", `[{"op":"add","path":"` + path + `","value":{"slipway-vm.github.io/volumes-to-migrate":"{\"root\":{\"claim\":\"a\",\"generation\":5}}"}}]`},
		"no change":                     {onClaims, onClaims, "jane", "[]"},
		"another change":                {noted(), strings.Replace(noted(), "Halted", "Always", 1), "jane", "[]"},
		"the note is left out":          {noted(), changed, "jane", `[{"op":"add","path":"` + path + `","value":{"slipway-vm.github.io/volumes-to-migrate":"{\"root\":{\"claim\":\"a\",\"generation\":3}}"}}]`},
		"virt-controller takes it off":  {noted(), changed, virtController, "[]"},
		"virt-controller restores":      {onClaims, changed, virtController, "[]"},
		"a note that somebody makes up": {changed, noted(), "jane", `[{"op":"remove","path":"` + path + `"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := patches(t, c.after, []byte(c.before), c.user); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
	if got := patches(t, noted(), nil, "jane"); !strings.Contains(got, `{"op":"remove","path":"`+path+`"}`) {
		t.Errorf("a new VM keeps a note that somebody made up: %s", got)
	}
	back := strings.Replace(noted(), "annotations: {", "annotations: {slipway-vm.github.io/undeleted-from: deleted-vm-1, ", 1)
	if got := patches(t, back, nil, "jane"); !strings.Contains(got, `"{\"root\":{\"claim\":\"a\",\"generation\":0}}"`) {
		t.Errorf("a VM that is brought back has forgotten what is to be copied: %s", got)
	}
	if got := patches(t, onClaims, []byte(onClaims), "jane"); strings.Contains(got, "finalizers") {
		t.Errorf("a VM that lacks its finalizer gets it by a change: %s", got)
	}
}
