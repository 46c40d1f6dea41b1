package virtualmachineinstance

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// mounting is a VMI's spec that is admitted, with a filesystem on each kind of folder.
const mounting = `
domain:
  memory: {guest: 256Mi}
  devices:
    interfaces: [{name: default, masquerade: {}}]
    disks: [{name: root, disk: {bus: virtio}}]
    filesystems:
    - {name: config, virtiofs: {}}
    - {name: secret, virtiofs: {}}
    - {name: account, virtiofs: {}}
    - {name: facts, virtiofs: {}}
    - {name: claim, virtiofs: {}}
    - {name: filled, virtiofs: {}}
networks: [{name: default, pod: {}}]
volumes:
- {name: root, containerDisk: {image: x}}
- {name: config, configMap: {name: c}}
- {name: secret, secret: {secretName: s}}
- {name: account, serviceAccount: {serviceAccountName: a}}
- {name: facts, downwardAPI: {fields: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
- {name: claim, persistentVolumeClaim: {claimName: p}}
- {name: filled, dataVolume: {name: d}}
`

func TestFilesystemsThatCannotBeAreRefused(t *testing.T) {
	const filesystem, volume = "- {name: config, virtiofs: {}}", "configMap: {name: c}"
	for name, c := range map[string]struct {
		old, replacement string
		want             string // the error; empty when it is admitted
	}{
		"one of each kind":            {"256Mi", "512Mi", ""},
		"a claim that is read":        {"{claimName: p}", "{claimName: p, readOnly: true}", ""},
		"two of a name":               {filesystem, filesystem + "\n    " + filesystem, `spec.domain.devices.filesystems[1].name: Invalid value: "config": spec.domain.devices.filesystems[0] and spec.domain.devices.filesystems[1] must not have the same Name.`},
		"one without a volume":        {filesystem, filesystem + "\n    - {name: nope, virtiofs: {}}", `spec.domain.devices.filesystems[1].name: Invalid value: "nope": spec.domain.devices.filesystems[1].Name 'nope' not found.`},
		"one of no kind":              {filesystem, "- {name: config}", `spec.domain.devices.filesystems[0].virtiofs: Required value: set it to {}: a guest gets a folder in no other way`},
		"a disk, too":                 {"disks: [", "disks: [{name: config, disk: {bus: virtio}}, ", `spec.domain.devices.filesystems[0].name: Invalid value: "config": the volume is a disk of the guest, too; remove the disk, or the filesystem`},
		"a disk":                      {volume, "emptyDisk: {capacity: 1Gi}", `spec.volumes[1]: Invalid value: "config": is no folder that a guest can mount; use configMap, secret, serviceAccount, downwardAPI, persistentVolumeClaim or dataVolume`},
		"an image":                    {volume, "containerDisk: {image: x}", `spec.volumes[1]: Invalid value: "config": is no folder`},
		"a base that is only read":    {volume, "ephemeral: {persistentVolumeClaim: {claimName: e}}", `spec.volumes[1]: Invalid value: "config": is no folder`},
		"a claim that comes and goes": {"{claimName: p}", "{claimName: p, hotpluggable: true}", `spec.volumes[5]: Forbidden: a filesystem is there from the guest's start to its end; leave hotpluggable out`},
		"a label of no disc":          {volume, "configMap: {name: c, volumeLabel: x}", `spec.volumes[1].configMap.volumeLabel: Invalid value: "x": is the label of a disc, and the guest mounts the volume by its name; remove the field`},
		"a label of a Secret":         {"{secretName: s}", "{secretName: s, volumeLabel: x}", `spec.volumes[2].secret.volumeLabel: Invalid value`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(mounting, c.old, c.replacement, 1)
			if text == mounting {
				t.Fatal("the case changes nothing")
			}
			check(t, text, c.want)
		})
	}
}

func TestANameThatTheGuestHasNoRoomForIsRefused(t *testing.T) {
	for name, want := range map[string]string{
		strings.Repeat("n", 36): "",
		strings.Repeat("n", 37): "spec.domain.devices.filesystems[0].name: Too long: may not be more than 36 bytes",
	} {
		check(t, strings.ReplaceAll(mounting, "name: config,", "name: "+name+","), want)
	}
}

// check validates a spec, of which want is the beginning of the only error; empty for none.
func check(t *testing.T, text, want string) {
	t.Helper()
	spec := &virtv1.VirtualMachineInstanceSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	errs := Validate(spec, field.NewPath("spec"))
	switch {
	case want == "" && len(errs) > 0, want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want)):
		t.Errorf("got %v, want %q", errs, want)
	}
}
