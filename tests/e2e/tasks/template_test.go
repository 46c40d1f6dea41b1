//go:build e2e

package tasks

import (
	"context"
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	templatev1 "github.com/openshift/api/template/v1"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

var _ = Describe("create-vm-from-manifest", func() {
	It("makes a VM from flags of virtctl and starts it", func(ctx context.Context) {
		name := "from-flags-" + rand.String(5)
		vm := &virtv1.VirtualMachine{ObjectMeta: meta(name)}
		later(vm)
		results := suite.Succeeds(ctx, "create-vm-from-manifest", map[string]any{
			"virtctl": "--name " + name + " --run-strategy Halted --memory 128Mi --termination-grace-period 5 \\\n" +
				"--volume-containerdisk 'src:" + suite.TinyImage() + ",name:root,bootorder:1' --user root --ssh-key \"ssh-ed25519 AAAA test@here\"",
			"startVM": "true",
		})
		Expect(results).To(And(HaveKeyWithValue("name", name), HaveKeyWithValue("namespace", ns)))
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).To(Succeed())
		Expect(vm.Spec.Template.ObjectMeta.Labels).To(HaveKeyWithValue("vm.kubevirt.io/name", name))
		suite.Succeeds(ctx, "wait-for-vmi-status", map[string]any{"vmiName": name, "successCondition": "status.phase == Running"})

		By("refusing a VM of the same name")
		code, log := suite.Fails(ctx, "create-vm-from-manifest", map[string]any{"virtctl": "--name " + name})
		Expect(code).To(BeEquivalentTo(4))
		Expect(log).To(ContainSubstring(`virtualmachines.kubevirt.io \"` + name + `\" already exists`))
	}, SpecTimeout(30*time.Minute))

	It("generates a name, prints the VM, and lets it go with the run", func(ctx context.Context) {
		run := suite.TaskRun(ctx, "create-vm-from-manifest", map[string]any{
			"setOwnerReference": "true",
			"manifest": "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  generateName: owned-\nspec:\n  runStrategy: Halted\n" +
				"  template:\n    spec:\n      domain:\n        memory:\n          guest: 64Mi\n",
		})
		log := suite.TaskLog(ctx, run)
		Expect(log).To(ContainSubstring("apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n"))
		Expect(run.Status.Results).To(HaveLen(2), log)
		vm := &virtv1.VirtualMachine{}
		for _, result := range run.Status.Results {
			if result.Name == "name" {
				vm.ObjectMeta = meta(result.Value.StringVal)
			}
		}
		later(vm)
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).To(Succeed())
		Expect(vm.Name).To(HavePrefix("owned-"))
		Expect(vm.OwnerReferences).To(HaveLen(1))
		Expect(vm.OwnerReferences[0].UID).To(Equal(run.UID))

		By("deleting the run")
		Expect(suite.World.Client.Delete(ctx, &tektonv1.TaskRun{ObjectMeta: meta(run.Name)})).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(25*time.Minute))

	It("adds volumes under the old parameters and gives them to the VM, as create-vm-from-template does", func(ctx context.Context) {
		missing := map[string]any{"virtctl": "--name lacking", "dataVolumes": []string{"none"}}
		code, log := suite.Fails(ctx, "create-vm-from-manifest", missing)
		Expect(code).To(BeEquivalentTo(3))
		Expect(log).To(ContainSubstring(`datavolumes.cdi.kubevirt.io \"none\" not found`))

		name := "volumes-" + rand.String(5)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta(name + "-claim"), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
		}}
		dv := &cdiv1.DataVolume{ObjectMeta: meta(name + "-dv"), Spec: cdiv1.DataVolumeSpec{
			Source:  &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}},
			Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{Requests: claim.Spec.Resources.Requests}},
		}}
		later(claim)
		later(dv)
		suite.Create(ctx, claim, dv)
		params := map[string]any{"runStrategy": "Halted", "ownDataVolumes": []string{"extra:" + dv.Name}, "ownPersistentVolumeClaims": []string{claim.Name}}
		for task, more := range map[string]map[string]any{
			"create-vm-from-manifest": {"virtctl": "--name " + name + "-a --memory 64Mi"},
			"create-vm-from-template": {
				"templateName":   "golden-image-check",
				"templateParams": []string{"NAME:" + name + "-b", "SOURCE_PVC:none", "DISK_SIZE:1Gi", "SSH_PUBLIC_KEY:ssh-ed25519 AAAA test"},
			},
		} {
			maps.Copy(more, params)
			vm := &virtv1.VirtualMachine{ObjectMeta: meta(suite.Succeeds(ctx, task, more)["name"])}
			later(vm)
			Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).To(Succeed())
			for _, object := range []client.Object{claim, dv} {
				Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
				Expect(object.GetOwnerReferences()).To(ContainElement(HaveField("UID", vm.UID)))
			}
		}
	}, SpecTimeout(30*time.Minute))

	DescribeTable("refuses wrong parameters", func(ctx context.Context, params map[string]any, want string) {
		code, log := suite.Fails(ctx, "create-vm-from-manifest", params)
		Expect(code).To(BeEquivalentTo(2))
		Expect(log).To(ContainSubstring(want))
	},
		Entry("neither source", SpecTimeout(15*time.Minute), map[string]any{}, "only one of vm-manifest or virtctl should be specified"),
		Entry("no YAML", SpecTimeout(15*time.Minute), map[string]any{"manifest": "blabla"}, "could not read VM manifest: error unmarshaling"),
		Entry("an unknown flag", SpecTimeout(15*time.Minute), map[string]any{"virtctl": "--name x --colour red"}, "unknown flag: --colour"),
	)
})

// gone says that the object cannot be found.
func gone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
	Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s is still there: %v", object.GetName(), err)
}

var _ = Describe("templates that tasks copy and change", func() {
	It("copies a Template, changes the copy, makes a VM from it, deletes it", func(ctx context.Context) {
		target := "copy-" + rand.String(5)
		tmpl := &templatev1.Template{ObjectMeta: meta(target)}
		later(tmpl)
		copied := map[string]any{"sourceTemplateName": "golden-image-check", "targetTemplateName": target}
		results := suite.Succeeds(ctx, "copy-template", copied)
		Expect(results).To(And(HaveKeyWithValue("name", target), HaveKeyWithValue("namespace", ns)))
		code, log := suite.Fails(ctx, "copy-template", copied)
		Expect(code).To(BeEquivalentTo(3))
		Expect(log).To(ContainSubstring(`\"` + target + `\" already exists`))
		copied["allowReplace"] = "true"
		suite.Succeeds(ctx, "copy-template", copied)
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(tmpl), tmpl)).To(Succeed())
		Expect(tmpl.Labels).To(And(HaveKeyWithValue("template.kubevirt.io/type", "vm"), Not(HaveKey("app.kubernetes.io/managed-by"))))

		By("changing it")
		suite.Succeeds(ctx, "modify-vm-template", map[string]any{
			"templateName": target, "deleteDatavolumeTemplate": "true", "cpuCores": "2",
			"templateLabels":     []string{"team: builds"},
			"vmAnnotations":      []string{"note:two", "words"},
			"templateParameters": []string{`{"name": "MOTD", "value": "hello"}`},
			"disks":              []string{`{"name": "cloudinit", "disk": {"bus": "sata"}}`},
			"volumes":            []string{`{"name": "cloudinit", "cloudInitNoCloud": {"userData": "#cloud-config\nhostname: ${NAME}\nruncmd: ['echo ${MOTD} $$${HOME}']"}}`}, // the kubelet makes $ of $$
		})
		code, log = suite.Fails(ctx, "modify-vm-template", map[string]any{"templateName": target, "memory": "lots"})
		Expect(code).To(BeEquivalentTo(1))
		Expect(log).To(ContainSubstring("wrong memory value"))

		By("making a VM from it")
		name := "from-copy-" + rand.String(5)
		vm := &virtv1.VirtualMachine{ObjectMeta: meta(name)}
		later(vm)
		suite.Succeeds(ctx, "create-vm-from-template", map[string]any{
			"templateName":   target,
			"templateParams": []string{"NAME:" + name, "SOURCE_PVC:none", "DISK_SIZE:1Gi", "SSH_PUBLIC_KEY:ssh-ed25519 AAAA test", "MOTD:two", "words"},
		})
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).To(Succeed())
		Expect(vm.Labels).To(And(HaveKeyWithValue("vm.kubevirt.io/template", target), HaveKeyWithValue("vm.kubevirt.io/template.namespace", ns)))
		Expect(vm.Annotations).To(HaveKeyWithValue("note", "two words"))
		Expect(vm.Spec.DataVolumeTemplates).To(BeEmpty())
		Expect(vm.Spec.Template.Spec.Domain.CPU.Cores).To(BeEquivalentTo(2))
		Expect(vm.Spec.Template.Spec.Domain.Devices.Disks).To(HaveLen(1))
		Expect(vm.Spec.Template.Spec.Volumes).To(HaveLen(1))
		Expect(vm.Spec.Template.Spec.Volumes[0].CloudInitNoCloud.UserData).To(ContainSubstring("echo two words ${HOME}"))

		By("deleting it")
		suite.Succeeds(ctx, "modify-vm-template", map[string]any{"templateName": target, "deleteTemplate": "true"})
		gone(ctx, tmpl)
	}, SpecTimeout(40*time.Minute))

	It("takes a VirtualMachineTemplate of either version", func(ctx context.Context) {
		for _, version := range []string{"v1beta1", "v1alpha1"} {
			source := "vmt-" + version + "-" + rand.String(5)
			template := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "template.kubevirt.io/" + version, "kind": "VirtualMachineTemplate",
				"metadata": map[string]any{"namespace": ns, "name": source},
				"spec": map[string]any{
					"parameters": []any{
						map[string]any{"name": "NAME", "required": true},
						map[string]any{"name": "PASSWORD", "generate": "expression", "from": "[a-zA-Z0-9]{16}"},
					},
					"virtualMachine": map[string]any{
						"metadata": map[string]any{"name": "${NAME}"},
						"spec": map[string]any{"runStrategy": "Halted", "template": map[string]any{"spec": map[string]any{
							"domain":  map[string]any{"memory": map[string]any{"guest": "64Mi"}},
							"volumes": []any{map[string]any{"name": "seed", "cloudInitNoCloud": map[string]any{"userData": "#cloud-config\npassword: ${PASSWORD}\n"}}},
						}}},
					},
				},
			}}
			later(template)
			suite.Create(ctx, template)
			copied := suite.Succeeds(ctx, "copy-template", map[string]any{"sourceTemplateName": source, "setOwnerReference": "true"})
			Expect(copied["name"]).To(HavePrefix(source + "-"))
			suite.Succeeds(ctx, "modify-vm-template", map[string]any{"templateName": copied["name"], "memory": "96Mi", "vmLabels": []string{"made:so"}})

			name := "from-vmt-" + rand.String(5)
			vm := &virtv1.VirtualMachine{ObjectMeta: meta(name)}
			later(vm)
			suite.Succeeds(ctx, "create-vm-from-template", map[string]any{
				"templateName": copied["name"], "templateKind": "VirtualMachineTemplate", "templateParams": []string{"NAME:" + name},
			})
			Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).To(Succeed())
			Expect(vm.Labels).To(HaveKeyWithValue("made", "so"))
			Expect(vm.Spec.Template.Spec.Domain.Memory.Guest.String()).To(Equal("96Mi"))
			Expect(vm.Spec.Template.Spec.Volumes[0].CloudInitNoCloud.UserData).To(MatchRegexp(`password: [a-zA-Z0-9]{16}\n`))
			code, log := suite.Fails(ctx, "create-vm-from-template", map[string]any{"templateName": copied["name"]})
			Expect(code).To(BeEquivalentTo(1))
			Expect(log).To(ContainSubstring("required params are missing values: NAME"))

			suite.Succeeds(ctx, "copy-template", map[string]any{"sourceTemplateName": source, "targetTemplateName": copied["name"], "allowReplace": "true"})
			suite.Succeeds(ctx, "modify-vm-template", map[string]any{"templateName": copied["name"], "deleteTemplate": "true"})
			deleted := template.DeepCopy()
			deleted.SetName(copied["name"])
			gone(ctx, deleted)
		}
	}, SpecTimeout(45*time.Minute))
})
