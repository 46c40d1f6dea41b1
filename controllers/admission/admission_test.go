package admission

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// ask sends an object, as YAML, to the webhook at path. Nothing here looks anything up.
func ask(t *testing.T, path string, object, old []byte, user string, groups ...string) admission.Response {
	t.Helper()
	return askWith(t, empty{}, path, object, old, user, groups...)
}

// askWith is ask of a webhook that looks things up by reader.
func askWith(t *testing.T, reader client.Reader, path string, object, old []byte, user string, groups ...string) admission.Response {
	t.Helper()
	raw := func(data []byte) runtime.RawExtension {
		if data == nil {
			return runtime.RawExtension{}
		}
		content, err := yaml.YAMLToJSON(data)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: content}
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: "prod", Name: "x", Kind: metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"},
		Operation: admissionv1.Create, Object: raw(object), OldObject: raw(old),
		UserInfo: authenticationv1.UserInfo{Username: user, Groups: groups},
	}}
	if old != nil {
		request.Operation = admissionv1.Update
	}
	return Handlers(reader, nil, "slipway", func() time.Time { return noon })[path].Handle(context.Background(), request)
}

// refusedPaths are the paths that a response refuses.
func refusedPaths(response admission.Response) []string {
	var paths []string
	if response.Result != nil && response.Result.Details != nil {
		for _, cause := range response.Result.Details.Causes {
			paths = append(paths, cause.Field)
		}
	}
	return paths
}

func TestTheFieldsTemplatesAreAdmittedUnchanged(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if response := ask(t, "/virtualmachines-validate", data, nil, "jane"); !response.Allowed {
			t.Errorf("%s is refused: %s", file, response.Result.Message)
		}
	}
}

// base is a VM that is admitted; cases change it.
const base = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: x, namespace: prod}
spec:
  runStrategy: Always
  template:
    spec:
      domain:
        memory: {guest: 1Gi}
        devices:
          disks: [{name: root, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes: [{name: root, containerDisk: {image: img}}]
`

func TestBadVirtualMachinesAreRefusedWithThePath(t *testing.T) {
	const spec = "spec.template.spec."
	for name, c := range map[string]struct {
		old, replacement string
		want             []string
	}{
		"nothing wrong":                        {"1Gi", "2Gi", nil},
		"a field not acted on":                 {"disks:", "gpus: [{name: g, deviceName: d}]\n          disks:", []string{spec + "domain.devices.gpus[0].deviceName", spec + "domain.devices.gpus[0].name"}},
		"an annotation not acted on":           {"    spec:\n", "    metadata: {annotations: {kubevirt.io/ignitiondata: '{}', a: b}}\n    spec:\n", []string{"spec.template.metadata.annotations[kubevirt.io/ignitiondata]"}},
		"an annotation that is acted on":       {"    spec:\n", "    metadata: {annotations: {kubevirt.io/disablePCIHole64: \"true\"}}\n    spec:\n", nil},
		"a start by hand":                      {"Always", "Manual", nil},
		"a run strategy not acted on":          {"Always", "WaitAsReceiver", []string{"spec.runStrategy"}},
		"a guest that begins paused":           {"    spec:\n", "    spec:\n      startStrategy: Paused\n", nil},
		"a start strategy that is none":        {"    spec:\n", "    spec:\n      startStrategy: Slow\n", []string{spec + "startStrategy"}},
		"no run strategy":                      {"runStrategy: Always", "updateVolumesStrategy: Replacement", []string{"spec.runStrategy"}},
		"both ways to run":                     {"runStrategy: Always", "runStrategy: Always\n  running: true", []string{"spec.running"}},
		"probes of all kinds":                  {"    spec:\n", "    spec:\n      readinessProbe: {httpGet: {port: web, path: /, scheme: HTTPS}, successThreshold: 2}\n      livenessProbe: {exec: {command: [\"true\"]}, timeoutSeconds: 5}\n", nil},
		"a probe of nothing":                   {"    spec:\n", "    spec:\n      readinessProbe: {periodSeconds: 3}\n", []string{spec + "readinessProbe"}},
		"a probe of two things":                {"    spec:\n", "    spec:\n      livenessProbe: {guestAgentPing: {}, tcpSocket: {port: 22}}\n", []string{spec + "livenessProbe"}},
		"a probe of no command":                {"    spec:\n", "    spec:\n      livenessProbe: {exec: {}}\n", []string{spec + "livenessProbe.exec.command"}},
		"a probe of a port beyond all":         {"    spec:\n", "    spec:\n      livenessProbe: {tcpSocket: {port: 70000}}\n", []string{spec + "livenessProbe.tcpSocket.port"}},
		"a probe that begins before the start": {"    spec:\n", "    spec:\n      livenessProbe: {guestAgentPing: {}, initialDelaySeconds: -1}\n", []string{spec + "livenessProbe.initialDelaySeconds"}},
		"a dead guest that must live twice":    {"    spec:\n", "    spec:\n      livenessProbe: {guestAgentPing: {}, successThreshold: 2}\n", []string{spec + "livenessProbe.successThreshold"}},
		"a probe with no way to the guest":     {"interfaces: [{name: default, masquerade: {}}]\n      networks: [{name: default, pod: {}}]", "autoattachPodInterface: false\n      readinessProbe: {tcpSocket: {port: 22}}", []string{spec + "readinessProbe.tcpSocket"}},
		"keys and passwords":                   {"    spec:\n", "    spec:\n      accessCredentials: [{sshPublicKey: {source: {secret: {secretName: k}}, propagationMethod: {qemuGuestAgent: {users: [root]}}}}, {userPassword: {source: {secret: {secretName: p}}, propagationMethod: {qemuGuestAgent: {}}}}]\n", nil},
		"keys for nobody":                      {"    spec:\n", "    spec:\n      accessCredentials: [{sshPublicKey: {source: {secret: {secretName: k}}, propagationMethod: {qemuGuestAgent: {users: []}}}}]\n", []string{spec + "accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users"}},
		"keys without a disk to put them on":   {"    spec:\n", "    spec:\n      accessCredentials: [{sshPublicKey: {source: {secret: {secretName: k}}, propagationMethod: {noCloud: {}}}}]\n", []string{spec + "accessCredentials[0].sshPublicKey.propagationMethod"}},
		"keys by a drive that is not there":    {"    spec:\n", "    spec:\n      accessCredentials: [{sshPublicKey: {source: {secret: {secretName: k}}, propagationMethod: {configDrive: {}}}}]\n", []string{spec + "accessCredentials[0].sshPublicKey.propagationMethod"}},
		"a password from nowhere to nowhere":   {"    spec:\n", "    spec:\n      accessCredentials: [{userPassword: {source: {}, propagationMethod: {}}}]\n", []string{spec + "accessCredentials[0].userPassword.source", spec + "accessCredentials[0].userPassword.propagationMethod"}},
		"a credential of no kind":              {"    spec:\n", "    spec:\n      accessCredentials: [{}]\n", []string{spec + "accessCredentials[0]"}},
		"no memory":                            {"memory: {guest: 1Gi}", "cpu: {cores: 1}", []string{spec + "domain.memory.guest"}},
		"sockets less than none":               {"memory:", "cpu: {sockets: -1}\n        memory:", []string{spec + "domain.cpu.sockets"}},
		"a seed that is no text":               {"containerDisk: {image: img}", "cloudInitNoCloud: {userData: 7}", []string{spec + "volumes.cloudInitNoCloud.userData"}},
		"a forgotten unit":                     {"1Gi", "1024", []string{spec + "domain.memory.guest"}},
		"a disk without a volume":              {"disks: [", "disks: [{name: nope, disk: {}}, ", []string{spec + "domain.devices.disks[0].name"}},
		"two disks of a name":                  {"disks: [", "disks: [{name: root, disk: {}}, ", []string{spec + "domain.devices.disks[1].name"}},
		"a bus that is none":                   {"bus: virtio", "bus: ide", []string{spec + "domain.devices.disks[0].disk.bus"}},
		"a cdrom on virtio":                    {"disk: {bus: virtio}", "cdrom: {bus: virtio}", []string{spec + "domain.devices.disks[0].cdrom.bus"}},
		"a boot order of 0":                    {"name: root, disk", "name: root, bootOrder: 0, disk", []string{spec + "domain.devices.disks[0].bootOrder"}},
		"a volume with two sources":            {"containerDisk: {image: img}", "containerDisk: {image: img}, emptyDisk: {capacity: 1Gi}", []string{spec + "volumes[0]"}},
		"an empty disk without a size":         {"containerDisk: {image: img}", "emptyDisk: {capacity: 0}", []string{spec + "volumes[0].emptyDisk.capacity"}},
		"a volume source not acted on":         {"containerDisk: {image: img}", "downwardMetrics: {}", []string{spec + "volumes[0].downwardMetrics"}},
		"answers for Windows":                  {"containerDisk: {image: img}", "sysprep: {configMap: {name: answers}}", nil},
		"answers from a Secret":                {"containerDisk: {image: img}", "sysprep: {secret: {name: answers}}", nil},
		"answers from nowhere":                 {"containerDisk: {image: img}", "sysprep: {}", []string{spec + "volumes[0].sysprep"}},
		"answers from two places":              {"containerDisk: {image: img}", "sysprep: {configMap: {name: a}, secret: {name: b}}", []string{spec + "volumes[0].sysprep"}},
		"answers without a name":               {"containerDisk: {image: img}", "sysprep: {secret: {}}", []string{spec + "volumes[0].sysprep.secret.name"}},
		"panic devices":                        {"disks:", "panicDevices: [{}, {model: pvpanic}]\n          disks:", nil},
		"two panic devices of a model":         {"disks:", "panicDevices: [{}, {model: isa}]\n          disks:", []string{spec + "domain.devices.panicDevices[1].model"}},
		"a panic device that is none":          {"disks:", "panicDevices: [{model: s390}]\n          disks:", []string{spec + "domain.devices.panicDevices[0].model"}},
		"discs of every kind": {"containerDisk: {image: img}", "configMap: {name: c, optional: true, volumeLabel: OEMDRV}}, {name: s, secret: {secretName: s}}, " +
			"{name: a, serviceAccount: {serviceAccountName: a}}, {name: d, downwardAPI: {fields: [{path: a/b, fieldRef: {fieldPath: \"metadata.labels['x']\"}}, {path: m, resourceFieldRef: {resource: limits.memory}}]}}, " +
			"{name: e, ephemeral: {persistentVolumeClaim: {claimName: e, readOnly: true}}}, {name: i, cloudInitConfigDrive: {secretRef: {name: u}, networkData: net}", nil},
		"a ConfigMap without a name":            {"containerDisk: {image: img}", "configMap: {volumeLabel: x}", []string{spec + "volumes[0].configMap.name"}},
		"a Secret without a name":               {"containerDisk: {image: img}", "secret: {optional: true}", []string{spec + "volumes[0].secret.secretName"}},
		"a label that fits no disc":             {"containerDisk: {image: img}", "secret: {secretName: s, volumeLabel: äh}", []string{spec + "volumes[0].secret.volumeLabel"}},
		"a long label":                          {"containerDisk: {image: img}", "configMap: {name: c, volumeLabel: 123456789-123456789-123456789-123}", []string{spec + "volumes[0].configMap.volumeLabel"}},
		"an account without a name":             {"containerDisk: {image: img}", "serviceAccount: {serviceAccountName: ''}", []string{spec + "volumes[0].serviceAccount.serviceAccountName"}},
		"two accounts":                          {"containerDisk: {image: img}", "serviceAccount: {serviceAccountName: a}}, {name: other, serviceAccount: {serviceAccountName: a}", []string{spec + "volumes"}},
		"two seeds":                             {"containerDisk: {image: img}", "cloudInitNoCloud: {userData: a}}, {name: other, cloudInitConfigDrive: {userData: a}", []string{spec + "volumes"}},
		"a configuration drive without data":    {"containerDisk: {image: img}", "cloudInitConfigDrive: {}", []string{spec + "volumes[0].cloudInitConfigDrive"}},
		"a configuration drive with bad base64": {"containerDisk: {image: img}", "cloudInitConfigDrive: {networkDataBase64: '***'}", []string{spec + "volumes[0].cloudInitConfigDrive.networkDataBase64"}},
		"a configuration drive of no Secret":    {"containerDisk: {image: img}", "cloudInitConfigDrive: {secretRef: {}}", []string{spec + "volumes[0].cloudInitConfigDrive.secretRef.name"}},
		"an overlay on nothing":                 {"containerDisk: {image: img}", "ephemeral: {persistentVolumeClaim: {}}", []string{spec + "volumes[0].ephemeral.persistentVolumeClaim.claimName"}},
		"a fact outside the disc":               {"containerDisk: {image: img}", "downwardAPI: {fields: [{path: a/../../b, fieldRef: {fieldPath: metadata.name}}]}", []string{spec + "volumes[0].downwardAPI.fields[0].path"}},
		"a fact twice":                          {"containerDisk: {image: img}", "downwardAPI: {fields: [{path: a, fieldRef: {fieldPath: metadata.name}}, {path: ./a, fieldRef: {fieldPath: metadata.uid}}]}", []string{spec + "volumes[0].downwardAPI.fields[1].path"}},
		"a fact that pods do not tell":          {"containerDisk: {image: img}", "downwardAPI: {fields: [{path: a, fieldRef: {fieldPath: spec.nodeName}}]}", []string{spec + "volumes[0].downwardAPI.fields[0].fieldRef.fieldPath"}},
		"a fact of another container":           {"containerDisk: {image: img}", "downwardAPI: {fields: [{path: a, resourceFieldRef: {containerName: c, resource: cpu}}]}", []string{spec + "volumes[0].downwardAPI.fields[0].resourceFieldRef.containerName", spec + "volumes[0].downwardAPI.fields[0].resourceFieldRef.resource"}},
		"a fact of nothing":                     {"containerDisk: {image: img}", "downwardAPI: {fields: [{path: a, mode: 512}]}", []string{spec + "volumes[0].downwardAPI.fields[0]", spec + "volumes[0].downwardAPI.fields[0].mode"}},
		"much user data":                        {"containerDisk: {image: img}", "cloudInitConfigDrive: {userData: '" + strings.Repeat("u", 2049) + "'}", []string{spec + "volumes[0].cloudInitConfigDrive"}},
		"much network data":                     {"containerDisk: {image: img}", "cloudInitNoCloud: {networkDataBase64: " + base64.StdEncoding.EncodeToString(make([]byte, 2049)) + "}", []string{spec + "volumes[0].cloudInitNoCloud"}},
		"more memory than can be addressed":     {"1Gi", "8192Pi", []string{spec + "domain.memory.guest"}},
		"a machine of a QEMU to come":           {"memory:", "machine: {type: pc-q35-99.9}\n        memory:", []string{spec + "domain.machine.type"}},
		"a CPU model that is no name":           {"memory:", "cpu: {model: '<x>'}\n        memory:", []string{spec + "domain.cpu.model"}},
		"a CPU feature that is no name":         {"memory:", "cpu: {features: [{name: a b}]}\n        memory:", []string{spec + "domain.cpu.features[0].name"}},
		"a CPU feature twice":                   {"memory:", "cpu: {features: [{name: pcid}, {name: pcid}]}\n        memory:", []string{spec + "domain.cpu.features[1].name"}},
		"a BIOS on a console that is not there": {"        devices:", "        firmware: {bootloader: {bios: {useSerial: true}}}\n        devices:\n          autoattachSerialConsole: false", []string{spec + "domain.firmware.bootloader.bios.useSerial"}},
		"EFI without ACPI":                      {"memory:", "firmware: {bootloader: {efi: {secureBoot: false}}}\n        features: {acpi: {enabled: false}}\n        memory:", []string{spec + "domain.features.acpi.enabled"}},
		"a time zone that is none":              {"memory:", "clock: {timezone: '<'}\n        memory:", []string{spec + "domain.clock.timezone"}},
		"a timer's policy that is none":         {"memory:", "clock: {utc: {}, timer: {hpet: {tickPolicy: never}}}\n        memory:", []string{spec + "domain.clock.timer.hpet.tickPolicy"}},
		"a card that QEMU has not":              {"disks:", "video: {type: qxl}\n          disks:", []string{spec + "domain.devices.video.type"}},
		"an action of a watchdog that is none":  {"disks:", "watchdog: {name: dog, i6300esb: {action: bark}}\n          disks:", []string{spec + "domain.devices.watchdog.i6300esb.action"}},
		"a watchdog without a model":            {"disks:", "watchdog: {name: dog}\n          disks:", nil},
		"an input's name that is none":          {"disks:", "inputs: [{name: a b, bus: usb, type: tablet}]\n          disks:", []string{spec + "domain.devices.inputs[0].name"}},
		"two inputs of a name":                  {"disks:", "inputs: [{name: a, bus: usb, type: tablet}, {name: a, bus: usb, type: tablet}]\n          disks:", []string{spec + "domain.devices.inputs[1].name"}},
		"a watchdog called as a disk":           {"disks:", "watchdog: {name: root, i6300esb: {}}\n          disks:", []string{spec + "domain.devices.watchdog.name"}},
		"bad base64":                            {"containerDisk: {image: img}", "cloudInitNoCloud: {userDataBase64: '***'}", []string{spec + "volumes[0].cloudInitNoCloud.userDataBase64"}},
		"a bridge":                              {"masquerade: {}", "bridge: {}, macAddress: \"02:00:00:00:00:01\", ports: [{name: web, port: 80}]", nil},
		"a bridge and masquerade":               {"masquerade: {}", "bridge: {}, masquerade: {}", []string{spec + "domain.devices.interfaces[0].bridge"}},
		"a network behind a bridge":             {"masquerade: {}}]\n      networks: [{name: default, pod: {}}]", "bridge: {}}]\n      networks: [{name: default, pod: {vmNetworkCIDR: 10.1.0.0/24}}]", []string{spec + "networks[0].pod.vmNetworkCIDR"}},
		"a binding that there is not":           {"masquerade: {}", "passtBinding: {}", []string{spec + "domain.devices.interfaces[0].passtBinding"}},
		"no binding":                            {", masquerade: {}", "", []string{spec + "domain.devices.interfaces[0].masquerade"}},
		"an interface without a network":        {"interfaces: [{name: default", "interfaces: [{name: other", []string{spec + "domain.devices.interfaces[0].name", spec + "networks[0].name"}},
		"a bad MAC address":                     {"masquerade: {}", "masquerade: {}, macAddress: nonsense", []string{spec + "domain.devices.interfaces[0].macAddress"}},
		"a port beyond all":                     {"masquerade: {}", "masquerade: {}, ports: [{port: 70000}]", []string{spec + "domain.devices.interfaces[0].ports[0].port"}},
		"a bad host name":                       {"      networks:", "      hostname: Not_A_Name\n      networks:", []string{spec + "hostname"}},
		"an unknown machine":                    {"memory:", "machine: {type: pc}\n        memory:", []string{spec + "domain.machine.type"}},
		"a request over its limit":              {"memory:", "resources: {requests: {cpu: 2}, limits: {cpu: 1}}\n        memory:", []string{spec + "domain.resources.requests.cpu"}},
		"a template that no volume uses":        {"runStrategy: Always", "runStrategy: Always\n  dataVolumeTemplates: [{metadata: {name: d}, spec: {source: {blank: {}}, storage: {resources: {requests: {storage: 1Gi}}}}}]", []string{"spec.dataVolumeTemplates[0]"}},
		"a disk from a source not acted on yet": {"runStrategy: Always", "runStrategy: Always\n  dataVolumeTemplates: [{metadata: {name: d}, spec: {source: {vddk: {url: u}}, storage: {}}}]", []string{"spec.dataVolumeTemplates[0].spec.source.vddk.url"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(base, c.old, c.replacement, 1)
			if text == base {
				t.Fatal("the case changes nothing")
			}
			response := ask(t, "/virtualmachines-validate", []byte(text), nil, "jane")
			if got := refusedPaths(response); !slices.Equal(got, c.want) {
				t.Errorf("refused %v, want %v", got, c.want)
			}
		})
	}
}

func TestBadDataVolumesAreRefused(t *testing.T) {
	const (
		good      = `spec: {source: {http: {url: "https://example.com/disk.qcow2"}}, storage: {resources: {requests: {storage: 1Gi}}}}`
		limitPath = "metadata.annotations[slipway-vm.github.io/bandwidth-limit]"
		image     = `spec: {source: {registry: {%s}}, storage: {resources: {requests: {storage: 1Gi}}}}`
	)
	limited := func(limit string) string {
		return `metadata: {annotations: {slipway-vm.github.io/bandwidth-limit: '` + limit + "'}}\n"
	}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a good one":            {good, nil},
		"no storage":            {`spec: {source: {blank: {}}}`, []string{"spec.storage"}},
		"no source":             {`spec: {storage: {resources: {requests: {storage: 1Gi}}}}`, []string{"spec.source"}},
		"no size":               {`spec: {source: {blank: {}}, storage: {}}`, []string{"spec.storage.resources.requests.storage"}},
		"a clone without size":  {`spec: {source: {pvc: {name: a, namespace: prod}}, storage: {}}`, nil},
		"another namespace":     {`spec: {source: {pvc: {name: a, namespace: other}}, storage: {}}`, nil},
		"not a web address":     {strings.Replace(good, "https", "ftp", 1), []string{"spec.source.http.url"}},
		"two sources":           {strings.Replace(good, "source: {", "source: {blank: {}, ", 1), []string{"spec.source"}},
		"an image":              {fmt.Sprintf(image, `url: "docker://registry.example.com:5000/team/disk:v1", pullMethod: pod, platform: {architecture: amd64}`), nil},
		"an image by digest":    {fmt.Sprintf(image, `url: "docker://registry.example.com/disk@sha256:`+strings.Repeat("0a", 32)+`", secretRef: a, certConfigMap: b`), nil},
		"tag and digest":        {fmt.Sprintf(image, `url: "docker://registry.example.com/disk:v1@sha256:`+strings.Repeat("0a", 32)+`"`), []string{"spec.source.registry.url"}},
		"no image":              {fmt.Sprintf(image, `secretRef: a`), []string{"spec.source.registry.url"}},
		"a bad image":           {fmt.Sprintf(image, `url: "docker://Registry/Disk"`), []string{"spec.source.registry.url"}},
		"an image by http":      {fmt.Sprintf(image, `url: "http://registry.example.com/disk"`), []string{"spec.source.registry.url"}},
		"an OCI archive":        {fmt.Sprintf(image, `url: "oci-archive:/disk.tar"`), []string{"spec.source.registry.url"}},
		"pulled by the node":    {fmt.Sprintf(image, `url: "docker://registry.example.com/disk", pullMethod: node, secretRef: a, platform: {architecture: arm64}`), nil},
		"a node's authority":    {fmt.Sprintf(image, `url: "docker://registry.example.com/disk", pullMethod: node, certConfigMap: a`), []string{"spec.source.registry.certConfigMap"}},
		"a node's OCI archive":  {fmt.Sprintf(image, `url: "oci-archive:/disk.tar", pullMethod: node`), []string{"spec.source.registry.url"}},
		"pulled by somebody":    {fmt.Sprintf(image, `url: "docker://registry.example.com/disk", pullMethod: cluster`), []string{"spec.source.registry.pullMethod"}},
		"an image stream":       {fmt.Sprintf(image, `imageStream: disk, pullMethod: node`), nil},
		"a pod's image stream":  {fmt.Sprintf(image, `imageStream: disk`), []string{"spec.source.registry.imageStream"}},
		"a nameless stream":     {fmt.Sprintf(image, `imageStream: "", pullMethod: node`), []string{"spec.source.registry.imageStream"}},
		"a stream and an image": {fmt.Sprintf(image, `imageStream: disk, url: "docker://a", pullMethod: node`), []string{"spec.source.registry.imageStream"}},
		"a source not acted on": {strings.Replace(good, "http:", "vddk:", 1), []string{"spec.source.vddk.url"}},
		"a bucket":              {strings.Replace(good, "http:", "s3:", 1), nil},
		"a bucket of Google's":  {strings.NewReplacer("http:", "gcs:", "https", "gs").Replace(good), nil},
		"a bucket's own scheme": {strings.NewReplacer("http:", "s3:", "https", "s3").Replace(good), []string{"spec.source.s3.url"}},
		"a bucket, no object":   {strings.NewReplacer("http:", "s3:", "/disk.qcow2", "/").Replace(good), []string{"spec.source.s3.url"}},
		"a key in the address":  {strings.NewReplacer("http:", "s3:", "example", "me:key@example").Replace(good), []string{"spec.source.s3.url"}},
		"a snapshot":            {`spec: {source: {snapshot: {name: a, namespace: prod}}, storage: {}}`, nil},
		"a nameless snapshot":   {`spec: {source: {snapshot: {name: "", namespace: prod}}, storage: {}}`, []string{"spec.source.snapshot.name"}},
		"an archive":            {strings.Replace(good, "storage:", "contentType: archive, storage:", 1), nil},
		"an archive that comes": {`spec: {contentType: archive, source: {upload: {}}, storage: {resources: {requests: {storage: 1Gi}}}}`, nil},
		"an archive of nothing": {`spec: {contentType: archive, source: {blank: {}}, storage: {resources: {requests: {storage: 1Gi}}}}`, []string{"spec.contentType"}},
		"an archive on a device": {strings.Replace(good, "storage: {", "contentType: archive, preallocation: true, storage: {volumeMode: Block, ", 1),
			[]string{"spec.storage.volumeMode", "spec.preallocation"}},
		"a bad checksum":     {strings.Replace(good, "url:", "checksum: 'sha256:12', url:", 1), []string{"spec.source.http.checksum"}},
		"a limit":            {limited("50Mi") + good, nil},
		"no limit":           {limited("fast") + good, []string{limitPath}},
		"a limit of nothing": {limited("1Mi") + `spec: {source: {blank: {}}, storage: {resources: {requests: {storage: 1Gi}}}}`, []string{limitPath}},
		"a limit of a node":  {limited("1Mi") + fmt.Sprintf(image, `url: "docker://registry.example.com/disk", pullMethod: node`), []string{limitPath}},
		"no access mode":     {`spec: {source: {blank: {}}, pvc: {resources: {requests: {storage: 1Gi}}}}`, []string{"spec.pvc.accessModes"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusedPaths(ask(t, "/datavolumes-validate", []byte(c.text), nil, "jane")); !slices.Equal(got, c.want) {
				t.Errorf("refused %v, want %v", got, c.want)
			}
		})
	}
	if response := ask(t, "/datavolumes-validate", []byte(strings.Replace(good, "1Gi", "2Gi", 1)), []byte(good), "jane"); response.Allowed {
		t.Error("a DataVolume's spec was changed")
	}
	if got := refusedPaths(ask(t, "/datavolumes-validate", []byte(limited("1")+good), []byte(good), "jane")); !slices.Equal(got, []string{limitPath}) {
		t.Errorf("a limit that is too small was set: refused %v", got)
	}
	marked := `metadata: {annotations: {slipway-vm.github.io/clone-authorized: other/disk}}` + "\n" + good
	if got := refusedPaths(ask(t, "/datavolumes-validate", []byte(marked), []byte(good), "jane")); !slices.Equal(got, []string{"metadata.annotations[slipway-vm.github.io/clone-authorized]"}) {
		t.Errorf("somebody allowed a clone: refused %v", got)
	}
}

// empty is a cluster with nothing in it.
type empty struct{}

func (empty) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", obj)}, key.Name)
}

func (empty) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

const runningVMI = `{metadata: {name: x, labels: {kubevirt.io/nodeName: n1}}, spec: {domain: {devices: {}, memory: {guest: 1Gi}}}, status: {phase: Running}}`

func TestWhoMayChangeAVMI(t *testing.T) {
	spec := strings.Replace(runningVMI, "1Gi", "2Gi", 1)
	status := strings.Replace(runningVMI, "Running", "Failed", 1)
	node := strings.Replace(runningVMI, "n1", "n2", 1)
	label := strings.Replace(runningVMI, "labels: {", "labels: {mine: x, ", 1)
	for name, c := range map[string]struct {
		after, user, group string
		want               []string
	}{
		"a user's own label":           {label, "jane", "", nil},
		"a user's annotation":          {strings.Replace(runningVMI, "labels: {", "annotations: {kubevirt.io/pause-guest-agent-probes: \"true\"}, labels: {", 1), "jane", "", []string{"metadata.annotations[kubevirt.io/pause-guest-agent-probes]"}},
		"a user and the spec":          {spec, "jane", "", []string{"spec"}},
		"a user and the status":        {status, "jane", "", []string{"status"}},
		"a user and the node's label":  {node, "jane", "", []string{"metadata.labels[kubevirt.io/nodeName]"}},
		"an administrator, the status": {status, "root", "system:masters", nil},
		"an administrator, the spec":   {spec, "root", "system:masters", []string{"spec"}},
		"virt-handler":                 {status, "system:serviceaccount:slipway:virt-handler", "", nil},
		"another's virt-handler":       {status, "system:serviceaccount:evil:virt-handler", "", []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			response := ask(t, "/virtualmachineinstances-validate", []byte(c.after), []byte(runningVMI), c.user, c.group)
			if got := refusedPaths(response); !slices.Equal(got, c.want) {
				t.Errorf("refused %v, want %v", got, c.want)
			}
		})
	}
}

// What is sent back is the object with its defaults, without the empty values that Go
// types write out of themselves, and a status that a client made up is gone.
func TestANewVMIIsCompleted(t *testing.T) {
	object := []byte(`{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: x}, status: {phase: Running, nodeName: mine},
		spec: {domain: {devices: {}, firmware: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223}, resources: {requests: {memory: 64Mi, cpu: 1500m}}}, volumes: [{name: root, containerDisk: {image: i}}]}}`)
	response := ask(t, "/virtualmachineinstances-mutate", object, nil, "jane")
	if !response.Allowed {
		t.Fatal(response.Result.Message)
	}
	got, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, words := range []string{
		`"path":"/spec/architecture"`, `{"op":"add","path":"/spec/terminationGracePeriodSeconds","value":30}`,
		`{"op":"add","path":"/spec/domain/machine","value":{"type":"q35"}}`, `{"op":"add","path":"/spec/domain/memory","value":{"guest":"64Mi"}}`,
		`{"op":"add","path":"/spec/domain/cpu","value":{"cores":1,"sockets":2,"threads":1}}`,
		`[{"masquerade":{},"model":"virtio","name":"default"}]`, `[{"disk":{"bus":"sata"},"name":"root"}]`,
		`kubevirt.io/foregroundDeleteVirtualMachine`, `{"op":"replace","path":"/status/phase","value":"Pending"}`, `{"op":"remove","path":"/status/nodeName"}`,
	} {
		if !strings.Contains(string(got), words) {
			want = append(want, words)
		}
	}
	if len(want) > 0 || strings.Contains(string(got), "null") || strings.Contains(string(got), "guestOSInfo") {
		t.Errorf("the patch lacks %q:\n%s", want, got)
	}
}

// A VMI whose defaults were filled in is one that is admitted: what a VM may have in its template, its VMI may be.
func TestWhatIsCompletedIsAdmitted(t *testing.T) {
	for name, change := range map[string]struct{ old, replacement string }{
		"a disk without a bus":    {"disk: {bus: virtio}", "disk: {}"},
		"a disk of no kind":       {"disk: {bus: virtio}", "bootOrder: 1"},
		"a CD-ROM without a bus":  {"disk: {bus: virtio}", "cdrom: {}"},
		"a lun without a bus":     {"disk: {bus: virtio}", "lun: {}"},
		"a lun that is only read": {"disk: {bus: virtio}", "lun: {readonly: true}"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := strings.Replace(strings.Replace(base, "containerDisk: {image: img}", "persistentVolumeClaim: {claimName: c}", 1), change.old, change.replacement, 1)
			if got := refusedPaths(ask(t, "/virtualmachines-validate", []byte(vm), nil, "jane")); got != nil {
				t.Fatalf("the VM is refused for %v", got)
			}
			if got := refusedPaths(ask(t, "/virtualmachineinstances-validate", completed(t, instanceOf(t, vm)), nil, "jane")); got != nil {
				t.Errorf("its VMI is refused for %v", got)
			}
		})
	}
}

// What a VM was given before it was refused is no reason to refuse what else changes in it.
func TestAnAnnotationThatWasThereStays(t *testing.T) {
	old := strings.Replace(base, "    spec:\n", "    metadata: {annotations: {hooks.kubevirt.io/hookSidecars: '[]'}}\n    spec:\n", 1)
	if got := refusedPaths(ask(t, "/virtualmachines-validate", []byte(strings.Replace(old, "1Gi", "2Gi", 1)), []byte(old), "jane")); got != nil {
		t.Errorf("refused %v", got)
	}
	vmi := []byte(`{metadata: {name: x, annotations: {hooks.kubevirt.io/hookSidecars: '[]'}}, spec: {domain: {devices: {}, memory: {guest: 1Gi}}}}`)
	if got := refusedPaths(ask(t, "/virtualmachineinstances-validate", vmi, nil, "jane")); !slices.Equal(got, []string{"metadata.annotations[hooks.kubevirt.io/hookSidecars]"}) {
		t.Errorf("a new VMI is refused for %v", got)
	}
}

// instanceOf is the VMI of a VM's template, as JSON.
func instanceOf(t *testing.T, vm string) []byte {
	t.Helper()
	var content struct {
		Spec struct {
			Template struct {
				Spec json.RawMessage `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(vm), &content); err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"x"},"spec":%s}`, content.Spec.Template.Spec)
}

// completed is what the API server makes of object with the patch of the webhook that completes it.
func completed(t *testing.T, object []byte) []byte {
	t.Helper()
	response := ask(t, "/virtualmachineinstances-mutate", object, nil, "jane")
	if !response.Allowed {
		t.Fatal(response.Result.Message)
	}
	document, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(document)
	if err != nil {
		t.Fatal(err)
	}
	out, err := patch.Apply(object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
