package power

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.

const (
	machines  = "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachines/web/"
	instances = "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/"
	object    = "/apis/kubevirt.io/v1/namespaces/shop/virtualmachines/web"
)

func run(cluster Cluster, line string) (string, error) {
	root := &cobra.Command{Use: "virtctl", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(NewCommands(cluster)...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(strings.Fields(line))
	err := root.Execute()
	return out.String(), err
}

func TestVerbsAskForWhatTheyAreCalled(t *testing.T) {
	vm := &virtv1.VirtualMachine{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"}, ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	for line, c := range map[string]struct {
		request, body, prints string
	}{
		"start web":                            {"PUT " + machines + "start", `{}`, "VM web was scheduled to start\n"},
		"start web --paused":                   {"PUT " + machines + "start", `{"paused":true}`, "VM web was scheduled to start\n"},
		"start web --dry-run":                  {"PUT " + machines + "start", `{"dryRun":["All"]}`, "Dry Run execution\nVM web was scheduled to start\n"},
		"stop web":                             {"PUT " + machines + "stop", `{}`, "VM web was scheduled to stop\n"},
		"stop web --force --grace-period=0":    {"PUT " + machines + "stop", `{"gracePeriod":0}`, "VM web was scheduled to stop\n"},
		"restart web":                          {"PUT " + machines + "restart", `{}`, "VM web was scheduled to restart\n"},
		"restart web --force --grace-period=0": {"PUT " + machines + "restart", `{"gracePeriodSeconds":0}`, "VM web was scheduled to restart\n"},
		"pause vmi web":                        {"PUT " + instances + "pause", `{}`, "VMI web was scheduled to pause\n"},
		"pause VirtualMachine web":             {"PUT " + instances + "pause", `{}`, "VMI web was scheduled to pause\n"},
		"pause vmi web --dry-run":              {"PUT " + instances + "pause", `{"dryRun":["All"]}`, "Dry Run execution\nVMI web was scheduled to pause\n"},
		"unpause vm web":                       {"PUT " + instances + "unpause", `{}`, "VMI web was scheduled to unpause\n"},
		"reset web":                            {"PUT " + instances + "reset", "", "VMI web was scheduled to reset\n"},
		"soft-reboot web":                      {"PUT " + instances + "softreboot", "", "VMI web was scheduled to soft-reboot\n"},
	} {
		t.Run(line, func(t *testing.T) {
			server := standin.Start(t)
			server.On(c.request, standin.Accepted)
			server.On("GET "+object, standin.JSON(vm))
			out, err := run(server, line)
			if err != nil || out != c.prints {
				t.Errorf("%v, printed %q", err, out)
			}
			if want := strings.TrimSpace(c.request + " " + c.body); !slices.Contains(server.Seen(), want) {
				t.Errorf("sent %q, want %q", server.Seen(), want)
			}
		})
	}
}

func TestFailuresAreToldInTheFieldsWords(t *testing.T) {
	conflict := standin.Refuse(http.StatusConflict, metav1.StatusReasonConflict, "VM is already running")
	gone := standin.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, `virtualmachineinstance.kubevirt.io "web" not found`)
	halted := &virtv1.VirtualMachine{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"}, ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	halted.Spec.RunStrategy = new(virtv1.RunStrategyHalted)
	for line, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"start web":                            {conflict, "Error starting VirtualMachine VM is already running"},
		"stop web":                             {conflict, "error stopping VirtualMachine VM is already running"},
		"stop web --force --grace-period=0":    {conflict, "error force stopping VirtualMachine: VM is already running"},
		"restart web":                          {conflict, "error restarting VirtualMachine: VM is already running"},
		"restart web --force --grace-period=0": {conflict, "error force restarting VirtualMachine: VM is already running"},
		"restart web --force":                  {nil, "must both use --force=true and set --grace-period"},
		"stop web --grace-period=0":            {nil, "must both use --force=true and set --grace-period"},
		"pause vmi web":                        {conflict, "Error pausing VirtualMachineInstance web: VM is already running"},
		"pause vm web":                         {gone, "Error pausing VirtualMachineInstance web. VirtualMachine web is not set to run"},
		"pause pod web":                        {nil, "unsupported resource type 'pod'; write vm or vmi"},
		"unpause vmi web":                      {conflict, "Error unpausing VirtualMachineInstance web: VM is already running"},
		"reset web":                            {conflict, "Error reseting VirtualMachineInstance web: VM is already running"}, //nolint:misspell // KubeVirt's own word
		"soft-reboot web":                      {conflict, "Error soft rebooting VirtualMachineInstance web: VM is already running"},
		"start other":                          {nil, "this cluster does not serve subresources.kubevirt.io/v1"},
	} {
		t.Run(line, func(t *testing.T) {
			server := standin.Start(t)
			server.On("GET "+object, standin.JSON(halted))
			if c.answer != nil {
				for _, path := range []string{machines + "start", machines + "stop", machines + "restart", instances + "pause", instances + "unpause", instances + "reset", instances + "softreboot"} {
					server.On("PUT "+path, c.answer)
				}
			}
			if out, err := run(server, line); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(out, "scheduled") {
				t.Errorf("%v, printed %q; want %s", err, out, c.want)
			}
		})
	}
}
