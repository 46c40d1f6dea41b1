//go:build e2e

package lifecycle

import (
	"context"
	"encoding/json"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a guest on a file of the node", func() {
	It("is let in by the feature gate, gets the file made, and has it alone", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		folder := "/var/tmp/" + ns
		DeferCleanup(os.RemoveAll, folder)
		onNode := func(name string) *virtv1.VirtualMachine {
			return fixture.VM(ns, name, fixture.ContainerDisk(suite.TinyImage()), fixture.Disk("node", virtv1.VolumeSource{HostDisk: &virtv1.HostDisk{
				Path: folder + "/vm.img", Type: virtv1.HostDiskExistsOrCreate, Capacity: resource.MustParse("16Mi"),
			}}))
		}
		By("being refused while the gate is off")
		patchKubeVirt(ctx, installed(ctx), env.KubeVirtPatch) // which a run that was killed may have left open
		err := suite.World.Client.Create(ctx, onNode("first"))
		Expect(err).To(MatchError(ContainSubstring("spec.template.spec.volumes[1].hostDisk: Forbidden: HostDisk feature gate is not enabled")))
		openGate(ctx, "HostDisk")

		By("writing to the file that was made for it")
		suite.Create(ctx, onNode("first"))
		first := suite.RunningVMI(ctx, ns, "first")
		Expect(suite.Shell(ctx, first, "cat /sys/block/vdb/size; echo kept | dd of=/dev/vdb conv=fsync,notrunc 2>/dev/null")).To(Equal("32768"))

		By("keeping another from it")
		suite.Create(ctx, onNode("second"))
		waiting := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "second"}}
		Expect(suite.World.Await(ctx, GinkgoWriter, waiting, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
			for _, condition := range obj.(*virtv1.VirtualMachineInstance).Status.Conditions {
				if condition.Type == virtv1.VirtualMachineInstanceReady {
					return condition.Reason + ": " + condition.Message, condition.Reason == "DiskInUse", nil
				}
			}
			return "it is not said whether it is ready", false, nil
		})).To(Succeed())
		Expect(suite.World.Client.Delete(ctx, onNode("first"))).To(Succeed())
		Expect(suite.Shell(ctx, suite.RunningVMI(ctx, ns, "second"), "head -c 4 /dev/vdb")).To(Equal("kept"))
	}, SpecTimeout(25*time.Minute))
})

// openGate turns a feature gate on for the rest of the spec.
func openGate(ctx context.Context, gate string) {
	GinkgoHelper()
	hco := installed(ctx)
	var operations []map[string]any
	Expect(json.Unmarshal([]byte(env.KubeVirtPatch), &operations)).To(Succeed())
	operations = append(operations, map[string]any{
		"op": "add", "path": "/spec/configuration/developerConfiguration/featureGates", "value": []string{gate},
	})
	after, err := json.Marshal(operations)
	Expect(err).NotTo(HaveOccurred())
	patchKubeVirt(ctx, hco, string(after), gate)
	DeferCleanup(func(ctx context.Context) { patchKubeVirt(ctx, installed(ctx), env.KubeVirtPatch) }, NodeTimeout(2*suite.BoundEnd))
}

// installed is the HyperConverged object.
func installed(ctx context.Context) *hcov1.HyperConverged {
	GinkgoHelper()
	hco := &hcov1.HyperConverged{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: names.InstallNamespace, Name: names.HyperConvergedName}, hco)).To(Succeed())
	return hco
}

// patchKubeVirt sets the patch of the KubeVirt object, and waits until it has these gates.
func patchKubeVirt(ctx context.Context, hco *hcov1.HyperConverged, patch string, gates ...string) {
	GinkgoHelper()
	changed := hco.DeepCopy()
	changed.Annotations[hcov1.AnnotationKubeVirtPatch] = patch
	Expect(suite.World.Client.Patch(ctx, changed, client.MergeFrom(hco))).To(Succeed())
	changed.DeepCopyInto(hco)
	kubevirt := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.KubeVirtName}}
	Expect(suite.World.Await(ctx, GinkgoWriter, kubevirt, suite.BoundEnd, func(obj client.Object) (string, bool, error) {
		developer := obj.(*virtv1.KubeVirt).Spec.Configuration.DeveloperConfiguration
		if developer == nil {
			return "no developerConfiguration", len(gates) == 0, nil
		}
		words, err := json.Marshal(developer.FeatureGates)
		return "feature gates " + string(words), len(developer.FeatureGates) == len(gates), err
	})).To(Succeed())
}
