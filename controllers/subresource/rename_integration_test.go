//go:build integration

package subresource_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/slipway-vm/slipway/controllers/subresource"
	"github.com/slipway-vm/slipway/internal/rename"
)

// renames asks for the record of a rename alone: virt-controller is not there.
func renames(t *testing.T, c *cluster) {
	t.Helper()
	c.vm(t, "rename-taken", virtv1.RunStrategyHalted)
	c.vm(t, "rename-always", virtv1.RunStrategyAlways)
	c.vmi(t, c.vm(t, "rename-busy", virtv1.RunStrategyManual))
	vm := c.vm(t, "rename-old", virtv1.RunStrategyHalted)
	vm.Annotations = map[string]string{"note": "kept"}
	rename.Failed(vm.Annotations, "before", "why")
	must(t, c.Update(t.Context(), vm))
	ask := func(name, body string, wantCode int, wantWords string) {
		t.Helper()
		c.wants(t, c.Config, http.MethodPut, "virtualmachines/"+name+"/rename", body, wantCode, wantWords)
	}
	ask("rename-old", "", http.StatusBadRequest, "a new name is expected as the request body")
	ask("rename-old", `{"newName":""}`, http.StatusBadRequest, "Please provide a new name for the VM")
	ask("rename-old", `{"newName":"rename-old"}`, http.StatusBadRequest, "The VM's new name cannot be identical to the current name")
	ask("rename-old", `{"newName":"New_"}`, http.StatusBadRequest, "The VM's new name is not valid")
	ask("rename-old", `{"newName":"new","oldName":"other"}`, http.StatusBadRequest, "oldName is other")
	ask("rename-old", `{"newName":"new","dryRun":["Some"]}`, http.StatusBadRequest, "invalid dryRun")
	ask("none", `{"newName":"new"}`, http.StatusNotFound, "not found")
	ask("rename-old", `{"newName":"rename-taken"}`, http.StatusConflict, "VirtualMachine rename-taken exists")
	ask("rename-old", `{"newName":"rename-busy"}`, http.StatusConflict, "VirtualMachine rename-busy exists")
	ask("rename-always", `{"newName":"new"}`, http.StatusConflict, "renaming a running VM is not allowed")
	ask("rename-busy", `{"newName":"new"}`, http.StatusConflict, "is in phase Running; stop it first")

	recorded := func() string {
		t.Helper()
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
		return rename.Target(vm)
	}
	ask("rename-old", `{"newName":"new","dryRun":["All"]}`, http.StatusAccepted, "")
	if got := recorded(); got != "" {
		t.Errorf("an attempt recorded %s", got)
	}
	ask("rename-old", `{"newName":"new","oldName":"rename-old"}`, http.StatusAccepted, "")
	if got := recorded(); got != "new" || vm.Annotations["note"] != "kept" {
		t.Errorf("recorded %v", vm.Annotations)
	}
	if _, found := vm.Annotations[rename.AnnotationFailure]; found {
		t.Errorf("the earlier failure is still there: %v", vm.Annotations)
	}
	ask("rename-old", `{"newName":"new"}`, http.StatusAccepted, "")
	ask("rename-old", `{"newName":"newer"}`, http.StatusConflict, "it is being renamed to new")
	c.wants(t, c.Config, http.MethodPut, "virtualmachines/rename-old/start", "", http.StatusConflict, "it is being renamed to new")
	c.wants(t, c.User(t, "viewer"), http.MethodPut, "virtualmachines/rename-old/rename", `{"newName":"new"}`, http.StatusForbidden, `virtualmachines/rename`)
	must(t, c.Delete(t.Context(), vm))
	renamesBusy(t, c)
}

// renamesBusy asks for the rename of a VM that its controller writes while it is judged: it is judged anew, but not for ever.
func renamesBusy(t *testing.T, c *cluster) {
	t.Helper()
	vm := c.vm(t, "rename-written", virtv1.RunStrategyHalted)
	ask := func(writes int) error {
		read := 0
		live := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
			Get: func(ctx context.Context, cluster client.WithWatch, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
				if err := cluster.Get(ctx, key, obj, options...); err != nil || obj.GetName() != vm.Name || read == writes {
					return err
				}
				if _, isVM := obj.(*virtv1.VirtualMachine); !isVM {
					return nil
				}
				read++
				written := obj.DeepCopyObject().(*virtv1.VirtualMachine)
				written.Status.ObservedGeneration++
				return cluster.Status().Update(ctx, written)
			},
		})
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/rename", strings.NewReader(`{"newName":"new"}`))
		request.SetPathValue("namespace", vm.Namespace)
		request.SetPathValue("name", vm.Name)
		return subresource.Rename(live, c.WithWatch, httptest.NewRecorder(), request)
	}
	if err := ask(-1); err == nil || !strings.Contains(err.Error(), "it changed meanwhile, look at it and try again") {
		t.Errorf("a VM that is written all the time: %v", err)
	}
	must(t, ask(2))
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
	if got := rename.Target(vm); got != "new" || vm.Status.ObservedGeneration < 3 {
		t.Errorf("recorded %q after generation %d", got, vm.Status.ObservedGeneration)
	}
	must(t, c.Delete(t.Context(), vm))
}
