package undelete

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

const (
	listed  = "GET /apis/apps/v1/namespaces/shop/controllerrevisions"
	created = "POST /apis/kubevirt.io/v1/namespaces/shop/virtualmachines"
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

// record is of VM web, which was deleted at a time, of an hour.
func record(t *testing.T, uid types.UID, hour int) appsv1.ControllerRevision {
	t.Helper()
	vm := fixture.VM("shop", "web")
	vm.UID, vm.Labels = uid, map[string]string{"uid": string(uid)}
	found, err := keep.Record(vm)
	if err != nil {
		t.Fatal(err)
	}
	found.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC))
	return *found
}

func TestTheLastOfTheNameIsBroughtBack(t *testing.T) {
	server := standin.Start(t)
	server.On(listed, standin.JSON(&appsv1.ControllerRevisionList{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ControllerRevisionList"},
		Items:    []appsv1.ControllerRevision{record(t, "first", 1), record(t, "last", 3), record(t, "second", 2)},
	}))
	server.On(created, standin.JSON(&virtv1.VirtualMachine{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"}}))
	out, err := run(server, "undelete vm web")
	if err != nil || out != "VM web was brought back\n" {
		t.Errorf("%v, printed %q", err, out)
	}
	if seen := strings.Join(server.Seen(), "\n"); !strings.Contains(seen, `"slipway-vm.github.io/undeleted-from":"deleted-vm-last"`) {
		t.Errorf("sent\n%s", seen)
	}
}

func TestWhatCannotBeBroughtBack(t *testing.T) {
	server := standin.Start(t)
	server.On(listed, standin.JSON(&appsv1.ControllerRevisionList{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ControllerRevisionList"}, Items: []appsv1.ControllerRevision{record(t, "first", 1)},
	}))
	server.On(created, standin.Refuse(http.StatusConflict, metav1.StatusReasonAlreadyExists, `virtualmachines.kubevirt.io "web" already exists`))
	for line, want := range map[string]string{
		"undelete vm web":  `error bringing back VirtualMachine web: creating it: virtualmachines.kubevirt.io "web" already exists`,
		"undelete vm shop": "there is no record of it in namespace shop; a VM is recorded that has the annotation slipway-vm.github.io/keep-volumes",
		"undelete vmi web": "unsupported resource type 'vmi'; write vm",
		"undelete web":     "accepts 2 arg(s)",
	} {
		if out, err := run(server, line); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%s: %v, printed %q, want %q", line, err, out, want)
		}
	}
}
