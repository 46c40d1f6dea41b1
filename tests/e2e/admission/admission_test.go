//go:build e2e

// Package admission tests what the API refuses, and with what words.
package admission

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestAdmission(t *testing.T) { suite.Run(t, "admission") }

var _ = Describe("admission", func() {
	DescribeTable("refuses a VM that cannot be as asked, and names the field",
		func(ctx context.Context, change fixture.VMOption, want ...string) {
			ns := suite.Namespace(ctx)
			err := suite.World.Client.Create(ctx, fixture.VM(ns, "bad", fixture.ContainerDisk("registry.local/x:y"), change))
			Expect(err).To(HaveOccurred())
			for _, words := range want {
				Expect(err.Error()).To(ContainSubstring(words))
			}
		},
		Entry("a field that is not acted on yet", SpecTimeout(15*time.Minute), fixture.VMOption(func(vm *virtv1.VirtualMachine) {
			vm.Spec.Template.Spec.Domain.Devices.GPUs = []virtv1.GPU{{Name: "gpu", DeviceName: "vendor.example/gpu"}}
		}), "spec.template.spec.domain.devices.gpus"),
		Entry("a disk without a volume", SpecTimeout(15*time.Minute), fixture.VMOption(func(vm *virtv1.VirtualMachine) {
			vm.Spec.Template.Spec.Volumes = nil
		}), "spec.template.spec.domain.devices.disks[0].name"),
		Entry("two ways to say when it runs", SpecTimeout(15*time.Minute), fixture.VMOption(func(vm *virtv1.VirtualMachine) {
			running := true
			vm.Spec.Running = &running
		}), "spec.running"),
	)

	It("refuses a field that does not exist, when the client asks for strict validation as kubectl does", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		data, err := yaml.Marshal(fixture.VM(ns, "typo", fixture.ContainerDisk("registry.local/x:y")))
		Expect(err).NotTo(HaveOccurred())
		vm := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(data, &vm.Object)).To(Succeed())
		Expect(unstructured.SetNestedField(vm.Object, int64(2), "spec", "template", "spec", "domain", "cpu", "coers")).To(Succeed())
		err = suite.World.Client.Create(ctx, vm, client.FieldValidation(metav1.FieldValidationStrict))
		Expect(err).To(MatchError(ContainSubstring(`unknown field "spec.template.spec.domain.cpu.coers"`)))
	}, SpecTimeout(15*time.Minute))

	DescribeTable("refuses a KubeVirt object that is not acted on, and names the field",
		func(ctx context.Context, change, want string) {
			kubevirt := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.KubeVirtName}}
			err := suite.World.Client.Patch(ctx, kubevirt, client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
			if want == "" {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(want + ": ")))
		},
		Entry("a field", SpecTimeout(15*time.Minute), `{"spec":{"configuration":{"minCPUModel":"Penryn"}}}`, "spec.configuration.minCPUModel"),
		Entry("a field of a list", SpecTimeout(15*time.Minute),
			`{"spec":{"configuration":{"supportContainerResources":[{"type":"sidecar","resources":{"requests":{"cpu":"1"}}}]}}}`,
			"spec.configuration.supportContainerResources[0].type"),
		Entry("a value", SpecTimeout(15*time.Minute), `{"spec":{"uninstallStrategy":"RemoveWorkloads"}}`, "spec.uninstallStrategy"),
		Entry("but none that is", SpecTimeout(15*time.Minute), `{"spec":{"configuration":{"obsoleteCPUModels":{"Conroe":true}}}}`, ""),
	)

	It("lets nobody write down what a DataVolume may clone, nor change it later", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		dv := fixture.DataVolume(ns, "mine", "64Mi")
		dv.Annotations[clonesource.AnnotationAuthorized] = "other/disk"
		suite.Create(ctx, dv)
		Expect(dv.Annotations).NotTo(HaveKey(clonesource.AnnotationAuthorized), "what the client wrote down counts")

		for annotation, refused := range map[string]bool{clonesource.AnnotationAuthorized: true, "example.com/note": false} {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"other/disk"}}}`, annotation)
			err := suite.World.Client.Patch(ctx, dv, client.RawPatch(types.MergePatchType, patch))
			if refused {
				Expect(err).To(MatchError(ContainSubstring("metadata.annotations[" + annotation + "]")))
				continue
			}
			Expect(err).NotTo(HaveOccurred())
		}
	}, SpecTimeout(15*time.Minute))

	It("lets nobody change what a running instance is", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "fixed", fixture.ContainerDisk(suite.TinyImage())))
		vmi := suite.RunningVMI(ctx, ns, "fixed")
		Eventually(ctx, func() error { // whose status is written all the time, so that an update may come too late
			if err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vmi), vmi); err != nil {
				return err
			}
			vmi.Spec.Domain.CPU.Cores = 2
			err := suite.World.Client.Update(ctx, vmi)
			if err == nil {
				return StopTrying("it was changed")
			}
			return err
		}, suite.BoundEnd, time.Second).Should(MatchError(ContainSubstring("spec")))
	}, SpecTimeout(20*time.Minute))
})
