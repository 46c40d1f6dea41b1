package rename

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/rename"
	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

const (
	request = "PUT /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachines/web/rename"
	objects = "GET /apis/kubevirt.io/v1/namespaces/shop/virtualmachines"
)

func run(cluster Cluster, line string) (string, error) {
	root := &cobra.Command{Use: "virtctl", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(NewCommand(cluster))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(strings.Fields(line))
	err := root.Execute()
	return out.String(), err
}

func TestTheVerbAsksForTheNewName(t *testing.T) {
	for line, body := range map[string]string{
		"rename web shop --wait=false":                `{"newName":"shop","oldName":"web"}`,
		"rename vm web shop --wait=false":             `{"newName":"shop","oldName":"web"}`,
		"rename virtualmachine web shop --wait=false": `{"newName":"shop","oldName":"web"}`,
		"rename web shop --dry-run":                   `{"newName":"shop","oldName":"web","dryRun":["All"]}`,
	} {
		t.Run(line, func(t *testing.T) {
			server := standin.Start(t)
			server.On(request, standin.Accepted)
			out, err := run(server, line)
			if err != nil || !strings.HasSuffix(out, "VM web was scheduled to rename\n") {
				t.Errorf("%v, printed %q", err, out)
			}
			if !slices.Contains(server.Seen(), request+" "+body) {
				t.Errorf("sent %q, want %s", server.Seen(), body)
			}
		})
	}
}

func TestWrongLinesAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"rename web":          "accepts between 2 and 3 arg(s)",
		"rename vmi web shop": "unsupported resource type 'vmi'; write vm",
		"rename web shop":     "error renaming VirtualMachine web: this cluster does not serve subresources.kubevirt.io/v1",
	} {
		if out, err := run(standin.Start(t), line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, printed %q; want %s", line, err, out, want)
		}
	}
}

// machine is a VM as the API server shows it.
func machine(name, version string, annotations map[string]string) *virtv1.VirtualMachine {
	return &virtv1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", ResourceVersion: version, Annotations: annotations},
	}
}

// lists answers lists of VMs by their names, and holds watches.
func lists(vms ...*virtv1.VirtualMachine) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sendInitialEvents") != "" { // as an API server that cannot stream lists
			standin.Refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")(w, r)
			return
		}
		if r.URL.Query().Get("watch") != "" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		list := virtv1.VirtualMachineList{
			TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"},
		}
		for _, vm := range vms {
			if r.URL.Query().Get("fieldSelector") == "metadata.name="+vm.Name {
				list.Items = append(list.Items, *vm)
			}
		}
		standin.JSON(list)(w, r)
	}
}

func TestTheVerbWaits(t *testing.T) {
	failed := map[string]string{}
	rename.Failed(failed, "shop", "VirtualMachine shop exists")
	leaving := map[string]string{rename.AnnotationTarget: "shop"}
	for name, c := range map[string]struct {
		old, next *virtv1.VirtualMachine
		want      string
		wantError string
	}{
		"it is done":                   {nil, machine("shop", "8", nil), "VM web was renamed to shop\n", ""},
		"it fails":                     {machine("web", "8", failed), nil, "", "error renaming VirtualMachine web: VirtualMachine shop exists"},
		"somebody takes it back":       {machine("web", "8", nil), nil, "", "it was taken back"},
		"it is not done in time":       {machine("web", "8", leaving), nil, "", "it is not done after 1s; the cluster goes on with it"},
		"what it sees is from before":  {machine("web", "3", failed), nil, "", "it is not done after 1s"},
		"another VM has the name soon": {another(machine("web", "8", nil)), machine("shop", "8", nil), "VM web was renamed to shop\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := standin.Start(t)
			server.On(request, standin.Accepted)
			if c.old == nil {
				server.On(objects+"/web", standin.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
				server.On(objects, lists(c.next))
			} else {
				server.On(objects+"/web", standin.JSON(machine("web", "5", leaving)))
				server.On(objects, lists(slices.DeleteFunc([]*virtv1.VirtualMachine{c.old, c.next}, func(vm *virtv1.VirtualMachine) bool { return vm == nil })...))
			}
			bound := "5m"
			if strings.Contains(c.wantError, "not done") {
				bound = "1s"
			}
			out, err := run(server, "rename web shop --timeout="+bound)
			if c.wantError != "" && (err == nil || !strings.Contains(err.Error(), c.wantError)) || c.wantError == "" && err != nil {
				t.Errorf("got %v, want %s", err, c.wantError)
			}
			if !strings.HasSuffix(out, c.want) || strings.Contains(out, "was renamed") != (c.want != "") {
				t.Errorf("printed %q, want %q", out, c.want)
			}
		})
	}
}

// another is a VM of the same name that is not the same.
func another(vm *virtv1.VirtualMachine) *virtv1.VirtualMachine {
	vm.UID = "2"
	return vm
}
