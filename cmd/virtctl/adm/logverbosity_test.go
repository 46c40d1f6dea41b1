package adm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.

const (
	kubevirts = "/apis/kubevirt.io/v1/kubevirts"
	kubevirt  = "/apis/kubevirt.io/v1/namespaces/hco/kubevirts/kv"
	vms       = "/apis/kubevirt.io/v1/namespaces/shop/virtualmachines/"
	pods      = "/api/v1/namespaces/shop/pods"
)

// installed is a server with an installation that says levels, and two VMs of which "web" runs.
func installed(t *testing.T, levels *virtv1.LogVerbosity) *standin.Server {
	t.Helper()
	server := standin.Start(t)
	kv := virtv1.KubeVirt{}
	kv.Namespace, kv.Name = "hco", "kv"
	kv.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{LogVerbosity: levels}
	list := virtv1.KubeVirtList{Items: []virtv1.KubeVirt{kv}}
	list.APIVersion, list.Kind = "kubevirt.io/v1", "KubeVirtList"
	server.On("GET "+kubevirts, standin.JSON(list))
	kv.APIVersion, kv.Kind = "kubevirt.io/v1", "KubeVirt"
	server.On("PATCH "+kubevirt, standin.JSON(kv))
	server.On("GET /apis/hco.kubevirt.io/v1beta1/namespaces/hco/hyperconvergeds", standin.JSON(map[string]any{
		"apiVersion": "hco.kubevirt.io/v1beta1", "kind": "HyperConvergedList", "items": []any{map[string]any{
			"apiVersion": "hco.kubevirt.io/v1beta1", "kind": "HyperConverged", "metadata": map[string]any{"name": "h"},
			"spec": map[string]any{"logVerbosityConfig": map[string]any{"kubevirt": map[string]any{"virtAPI": 4, "virtHandler": 4}}},
		}},
	}))
	for name, label := range map[string]string{"web": "5", "db": ""} {
		vm := virtv1.VirtualMachine{}
		vm.APIVersion, vm.Kind, vm.Namespace, vm.Name = "kubevirt.io/v1", "VirtualMachine", "shop", name
		vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{}
		if label != "" {
			vm.Spec.Template.ObjectMeta.Labels = map[string]string{"logVerbosity": label}
		}
		server.On("GET "+vms+name, standin.JSON(vm))
		server.On("PATCH "+vms+name, standin.JSON(vm))
	}
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "compute", Env: []corev1.EnvVar{{Name: "VIRT_LAUNCHER_LOG_VERBOSITY", Value: "7"}}},
	}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	running := corev1.PodList{Items: []corev1.Pod{pod}}
	running.APIVersion, running.Kind = "v1", "PodList"
	server.On("GET "+pods, standin.JSON(running))
	return server
}

func run(server *standin.Server, line string) (string, error) {
	command := NewCommand(server)
	command.SilenceErrors, command.SilenceUsage = true, true
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetArgs(append([]string{"log-verbosity"}, strings.Fields(line)...))
	err := command.Execute()
	return out.String(), err
}

func TestLevelsAreShown(t *testing.T) {
	levels := &virtv1.LogVerbosity{VirtHandler: 6, VirtLauncher: 3}
	for line, want := range map[string]string{
		"--all":                      "virt-api = 4\nvirt-controller = 2\nvirt-handler = 6\nvirt-launcher = 3\nvirt-operator = 2\n",
		"--virt-handler --virt-api":  "virt-api = 4\nvirt-handler = 6\n",
		"--vm=web":                   "web = 7\nweb: updated verbosity 5 will be applied after the VM is restarted\n",
		"--virt-api --vm=web,web":    "virt-api = 4\n" + strings.Repeat("web = 7\nweb: updated verbosity 5 will be applied after the VM is restarted\n", 2),
		"--virt-operator --vm db":    "virt-operator = 2\ndb = 7\ndb: updated verbosity 3 will be applied after the VM is restarted\n",
		"--all --vm=db --virt-api":   "virt-api = 4\nvirt-controller = 2\nvirt-handler = 6\nvirt-launcher = 3\nvirt-operator = 2\ndb = 7\ndb: updated verbosity 3 will be applied after the VM is restarted\n",
		"--virt-launcher=show --all": "virt-api = 4\nvirt-controller = 2\nvirt-handler = 6\nvirt-launcher = 3\nvirt-operator = 2\n",
	} {
		if got, err := run(installed(t, levels), line); err != nil || got != want {
			t.Errorf("%s: %v, printed %q, want %q", line, err, got, want)
		}
	}
}

func TestLevelsAreSet(t *testing.T) {
	const spec = `{"spec":{"configuration":{"developerConfiguration":{"logVerbosity":{`
	const label = `{"spec":{"template":{"metadata":{"labels":{"logVerbosity":`
	const manager = "?fieldManager=virtctl"
	for line, want := range map[string][]string{
		"--virt-api=7": {"PATCH " + kubevirt + " " + spec + `"virtAPI":7}}}}}`},
		"--all=3 --virt-handler=0": {"PATCH " + kubevirt + " " + spec +
			`"virtAPI":3,"virtController":3,"virtHandler":0,"virtLauncher":3,"virtOperator":3}}}}}`},
		"--reset --virt-handler=7": {"PATCH " + kubevirt + " " + spec +
			`"virtAPI":null,"virtController":null,"virtHandler":7,"virtLauncher":null,"virtOperator":null}}}}}`},
		"--reset=web --vm=db --level=9": {"PATCH " + vms + "web " + label + `null}}}}}`, "PATCH " + vms + "db " + label + `"9"}}}}}`},
	} {
		server := installed(t, nil)
		if out, err := run(server, line); err != nil || !strings.Contains(out, "successfully") {
			t.Errorf("%s: %v, printed %q", line, err, out)
		}
		var got []string
		for _, request := range server.Seen() {
			if strings.HasPrefix(request, "PATCH") {
				got = append(got, strings.Replace(request, manager, "", 1))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: sent\n%s\nwant\n%s", line, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"":                               "expecting at least one flag",
		"--virt-api=10":                  "virt-api: log verbosity must be 0-9",
		"--virt-api=-1":                  "virt-api: log verbosity must be 0-9",
		"--all=much":                     "all: log verbosity must be 0-9",
		"--level=3":                      "need vm flag",
		"--vm=web --vm=db --level=3":     "number of vm flags 2 not equal to number of level flags 1",
		"--vm=web --level=12":            "web: log verbosity must be 0-9",
		"--virt-api --virt-controller=3": "only show or set is allowed",
		"--reset --all":                  "only show or set is allowed",
		"--vm=web --reset":               "only show or set is allowed",
		"--vm=nowhere":                   "error fetching Virtual Machine",
		"--synchronization=3":            "unknown flag",
	} {
		server := installed(t, nil)
		if out, err := run(server, line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, printed %q", line, err, out)
		}
	}
	server := standin.Start(t)
	list := virtv1.KubeVirtList{}
	list.APIVersion, list.Kind = "kubevirt.io/v1", "KubeVirtList"
	server.On("GET "+kubevirts, standin.JSON(list))
	if _, err := run(server, "--all"); err == nil || !strings.Contains(err.Error(), "could not detect a KubeVirt installation") {
		t.Errorf("%v", err)
	}
}
