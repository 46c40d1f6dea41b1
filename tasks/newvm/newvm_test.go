package newvm

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tasks/declare"
)

func machine(strategy virtv1.VirtualMachineRunStrategy) *virtv1.VirtualMachine {
	return &virtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"},
		Spec:       virtv1.VirtualMachineSpec{RunStrategy: &strategy, Template: &virtv1.VirtualMachineInstanceTemplateSpec{}},
	}
}

// read runs readOptions on parameters of a task.
func read(t *testing.T, values map[string]string, arrays map[string][]string) (options, error) {
	t.Helper()
	var got options
	task := &declare.Task{Name: "t", Params: Params(), Run: func(_ context.Context, call *declare.Call) error {
		var err error
		got, err = readOptions(call)
		return err
	}}
	var args []string
	for name, items := range arrays {
		args = append(append(args, `params."`+name+`"@`), items...)
	}
	err := task.Execute(t.Context(), declare.Environment{
		Args: args, Out: &bytes.Buffer{}, Log: slog.New(slog.DiscardHandler),
		LookupEnv: func(name string) (string, bool) { value, ok := values[name]; return value, ok },
		Connect:   func() (client.WithWatch, error) { return nil, nil },
	})
	return got, err
}

func TestHowItRuns(t *testing.T) {
	yes, no := true, false
	cases := map[string]struct {
		vm       *virtv1.VirtualMachine
		start    bool
		strategy virtv1.VirtualMachineRunStrategy
		want     virtv1.VirtualMachineRunStrategy
	}{
		"as the manifest says":               {machine(virtv1.RunStrategyHalted), false, "", virtv1.RunStrategyHalted},
		"started":                            {machine(virtv1.RunStrategyHalted), true, "", virtv1.RunStrategyAlways},
		"as the parameter says":              {machine(virtv1.RunStrategyHalted), false, virtv1.RunStrategyRerunOnFailure, virtv1.RunStrategyRerunOnFailure},
		"started though the parameter halts": {machine(virtv1.RunStrategyAlways), true, virtv1.RunStrategyHalted, virtv1.RunStrategyAlways},
		"manual, started later":              {machine(virtv1.RunStrategyManual), true, "", virtv1.RunStrategyManual},
		"once, which starts by itself":       {machine(virtv1.RunStrategyOnce), true, "", virtv1.RunStrategyOnce},
		"no strategy, started":               {&virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: virtv1.VirtualMachineSpec{Template: &virtv1.VirtualMachineInstanceTemplateSpec{}}}, true, "", virtv1.RunStrategyAlways},
		"running is false, started":          {&virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: virtv1.VirtualMachineSpec{Running: &no, Template: &virtv1.VirtualMachineInstanceTemplateSpec{}}}, true, "", virtv1.RunStrategyAlways},
		"running is true, and a strategy":    {&virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: virtv1.VirtualMachineSpec{Running: &yes, Template: &virtv1.VirtualMachineInstanceTemplateSpec{}}}, false, virtv1.RunStrategyHalted, virtv1.RunStrategyHalted},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := prepare(c.vm, options{start: c.start, strategy: c.strategy}); err != nil {
				t.Fatal(err)
			}
			if c.vm.Spec.Running != nil || *c.vm.Spec.RunStrategy != c.want {
				t.Errorf("running %v, strategy %v, want %s", c.vm.Spec.Running, *c.vm.Spec.RunStrategy, c.want)
			}
		})
	}
	nameless, empty := machine(virtv1.RunStrategyHalted), machine(virtv1.RunStrategyHalted)
	nameless.Name, empty.Spec.Template = "", nil
	for want, vm := range map[string]*virtv1.VirtualMachine{"neither metadata.name nor metadata.generateName": nameless, "no spec.template": empty} {
		if err := prepare(vm, options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestVolumes(t *testing.T) {
	o, err := read(t, nil, map[string][]string{
		"dataVolumes": {"dv1", "root: dv2"}, "ownDataVolumes": {":dv3"}, "persistentVolumeClaims": {" pvc1 "}, "ownPersistentVolumeClaims": {"data:pvc2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := &virtv1.VirtualMachineInstanceSpec{
		Domain:  virtv1.DomainSpec{Devices: virtv1.Devices{Disks: []virtv1.Disk{{Name: "root", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: "sata"}}}}}},
		Volumes: []virtv1.Volume{{Name: "root", VolumeSource: virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{}}}},
	}
	for _, v := range o.volumes {
		v.addTo(spec)
	}
	got, err := yaml.Marshal(map[string]any{"disks": spec.Domain.Devices.Disks, "volumes": spec.Volumes})
	if err != nil {
		t.Fatal(err)
	}
	want := `disks:
- disk:
    bus: sata
  name: root
- disk:
    bus: virtio
  name: pvc1
- disk:
    bus: virtio
  name: data
- disk:
    bus: virtio
  name: dv1
- disk:
    bus: virtio
  name: dv3
volumes:
- dataVolume:
    name: dv2
  name: root
- name: pvc1
  persistentVolumeClaim:
    claimName: pvc1
- name: data
  persistentVolumeClaim:
    claimName: pvc2
- dataVolume:
    name: dv1
  name: dv1
- dataVolume:
    name: dv3
  name: dv3
`
	if string(got) != want {
		t.Errorf("got:\n%s", got)
	}
	owned := 0
	for _, v := range o.volumes {
		if v.own {
			owned++
		}
	}
	if owned != 2 {
		t.Errorf("%d volumes are owned", owned)
	}
}

func TestOptionsRefuse(t *testing.T) {
	cases := map[string]struct {
		values map[string]string
		arrays map[string][]string
		want   string
	}{
		"an owner that is none":  {map[string]string{"PARAM_SET_OWNER_REFERENCE": "1"}, nil, `setOwnerReference: "1" is neither`},
		"a volume of nothing":    {nil, map[string][]string{"dataVolumes": {"root:"}}, `dataVolumes: "root:" names nothing`},
		"a volume twice":         {nil, map[string][]string{"dataVolumes": {"a"}, "persistentVolumeClaims": {"a"}}, "there is already a volume a"},
		"all problems, together": {map[string]string{"PARAM_SET_OWNER_REFERENCE": "1"}, map[string][]string{"ownDataVolumes": {""}}, "names nothing"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := read(t, c.values, c.arrays); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// The field's tasks start a VM only for "true", and refuse nothing else.
func TestStartsOnlyForTrue(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": false, "invalid_value": false, "True": false} {
		o, err := read(t, map[string]string{"PARAM_START_VM": value}, nil)
		if err != nil || o.start != want {
			t.Errorf("%q: start is %v, %v; want %v", value, o.start, err, want)
		}
	}
	var log bytes.Buffer
	task := &declare.Task{Params: Params(), Run: func(_ context.Context, call *declare.Call) error { _, err := readOptions(call); return err }}
	err := task.Execute(t.Context(), declare.Environment{Log: declare.NewLog(&log), LookupEnv: func(name string) (string, bool) { return "yes", name == "PARAM_START_VM" }})
	if err != nil || !strings.Contains(log.String(), `startVM: \"yes\" is neither`) {
		t.Errorf("got %v, logged %s", err, log.String())
	}
}

func TestShowHidesCloudInit(t *testing.T) {
	vm := machine(virtv1.RunStrategyHalted)
	vm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	vm.Spec.Template.Spec.Volumes = []virtv1.Volume{
		{Name: "a", VolumeSource: virtv1.VolumeSource{CloudInitNoCloud: &virtv1.CloudInitNoCloudSource{UserData: "hush", NetworkData: "hush"}}},
		{Name: "b", VolumeSource: virtv1.VolumeSource{CloudInitConfigDrive: &virtv1.CloudInitConfigDriveSource{UserDataBase64: "hush", NetworkDataBase64: "hush"}}},
	}
	var out bytes.Buffer
	if err := show(&declare.Call{Out: &out}, vm); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n") || strings.Contains(got, "hush") || strings.Contains(got, "managedFields") {
		t.Errorf("printed:\n%s", got)
	}
	if vm.Spec.Template.Spec.Volumes[0].CloudInitNoCloud.UserData != "hush" {
		t.Error("the VM itself was changed")
	}
}

// A VM of strategy Manual is started through its subresource; one that runs already is none to start.
func TestStartThrough(t *testing.T) {
	cases := map[string]struct {
		code int
		body string
		want string
	}{
		"started":       {http.StatusAccepted, ``, ""},
		"runs already":  {http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"message":"VM is already running"}`, ""},
		"not served":    {http.StatusNotFound, `404 page not found`, "does not serve subresources.kubevirt.io"},
		"not permitted": {http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no right to start"}`, "no right to start"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			asked := ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.Method + " " + r.URL.Path
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			err := startThrough(t.Context(), &rest.Config{Host: server.URL}, machine(virtv1.RunStrategyManual))
			if asked != "PUT /apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachines/vm/start" {
				t.Errorf("asked %q", asked)
			}
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
