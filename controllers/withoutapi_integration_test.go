//go:build integration

package controllers

import (
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This test ends virt-api, so its file's name puts it last: Go runs tests in the order of
// the files. The status of a running VM is written by its own accounts without it.
func TestTheStatusOfAVMINeedsNoVirtAPI(t *testing.T) {
	c := start(t)
	key, _ := c.run(t, "alone")
	kept, keptPod := c.runEvicting(t, "kept", virtv1.EvictionStrategyLiveMigrate)
	c.hasBudget(t, kept, true)
	c.stopAPI()
	handler := as(t, c.config, "system:serviceaccount:"+installed+":virt-handler")
	user := as(t, c.config, "jane")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"guestOSInfo":{"name":"told"}}}`))
	g := gomega.NewWithT(t)
	g.Eventually(func() error {
		return user.Patch(t.Context(), c.vmi(t, key), patch)
	}, bound, "200ms").Should(gomega.MatchError(gomega.ContainSubstring("failed calling webhook")), "virt-api is gone")
	must(t, handler.Patch(t.Context(), c.vmi(t, key), patch))
	denied(t, c.evict(t, keptPod), "disruption budget")
	err := handler.Patch(t.Context(), c.vmi(t, key), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hostname":"other"}}`)))
	if err == nil {
		t.Error("the spec was changed without virt-api")
	}
}
