//go:build e2e

package pipelines

import (
	"context"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"knative.dev/pkg/apis"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// served serves handler to the cluster until the test ends and returns its root.
func served(ctx context.Context, handler http.Handler) string {
	GinkgoHelper()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, err := suite.World.Serve(serving, handler)
	Expect(err).NotTo(HaveOccurred())
	return root
}

// imported fills a claim with a file of this machine, and returns it with the digest of its content.
func imported(ctx context.Context, ns, file string) (name, digest string) {
	GinkgoHelper()
	root := served(ctx, http.FileServer(http.Dir(filepath.Dir(file))))
	dv := fixture.DataVolume(ns, "publish-"+rand.String(5), "256Mi", fixture.HTTP(root+"/"+filepath.Base(file)))
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, dv))).To(Succeed())
	}, NodeTimeout(suite.BoundEnd))
	suite.Create(ctx, dv)
	suite.DataVolume(ctx, ns, dv.Name, cdiv1.Succeeded)
	claim := &corev1.PersistentVolumeClaim{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(dv), claim)).To(Succeed())
	Expect(claim.Annotations).To(HaveKey(names.AnnotationDigest))
	return dv.Name, claim.Annotations[names.AnnotationDigest]
}

// registryLogin makes the Secret with a registry's credentials.
func registryLogin(ctx context.Context, ns string) string {
	GinkgoHelper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "login-" + rand.String(5)},
		StringData: map[string]string{"accessKeyId": "me", "secretKey": "secret"},
	}
	DeferCleanup(func(ctx context.Context) { Expect(suite.World.Client.Delete(ctx, secret)).To(Succeed()) }, NodeTimeout(suite.BoundEnd))
	suite.Create(ctx, secret)
	return secret.Name
}

var _ = Describe("image-to-registry", Label(publishing), func() {
	It("pushes a disk, which comes back the same, and tells its URL and digest", func(ctx context.Context) {
		ns := tasksNamespace(ctx)
		disk, err := suite.World.Guest(ctx, "tiny")
		Expect(err).NotTo(HaveOccurred())
		volume, content := imported(ctx, ns, disk)
		root := served(ctx, registry.New(registry.Logger(log.New(GinkgoWriter, "registry: ", 0))))
		image := strings.TrimPrefix(root, "http://") + "/golden:v1"
		run := ended(ctx, ns, "image-to-registry", map[string]string{
			"EXPORT_SOURCE_NAME": volume, "VOLUME_NAME": volume, "IMAGE_DESTINATION": image, "SECRET_NAME": registryLogin(ctx, ns), "PLAIN_HTTP": "true",
		})
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsTrue()).To(BeTrue(), "%s", run.Status.GetCondition(apis.ConditionSucceeded).Message)
		Expect(results(run)).To(And(HaveKeyWithValue("IMAGE_URL", image), HaveKeyWithValue("IMAGE_DIGEST", HavePrefix("sha256:"))))
		Expect(taskRuns(ctx, run)).NotTo(HaveKey("boot"), "a VM was made though nobody asked for a check")

		By("pulling it by its digest and by its tag")
		for _, reference := range []string{results(run)["IMAGE_DIGEST"], "v1"} {
			_, back := imported(ctx, ns, suite.PulledDisk(ctx, root, reference))
			Expect(back).To(Equal(content), "the image %s holds another disk", reference)
		}
	}, SpecTimeout(boundRun))

	It("tries a registry that is not there again until its time is over, and says so", func(ctx context.Context) {
		ns := tasksNamespace(ctx)
		disk, err := suite.World.Guest(ctx, "tiny")
		Expect(err).NotTo(HaveOccurred())
		volume, _ := imported(ctx, ns, disk)
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		Expect(closed.Close()).To(Succeed())
		run := ended(ctx, ns, "image-to-registry", map[string]string{
			"EXPORT_SOURCE_NAME": volume, "VOLUME_NAME": volume, "IMAGE_DESTINATION": closed.Addr().String() + "/golden:v1",
			"SECRET_NAME": registryLogin(ctx, ns), "PUSH_TIMEOUT": "1", "checkImage": "true",
		})
		Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsFalse()).To(BeTrue())
		tasks := taskRuns(ctx, run)
		Expect(tasks).NotTo(HaveKey("boot"))
		Expect(tasks["upload"].Status.Steps[0].Terminated.ExitCode).To(BeEquivalentTo(3))
		Expect(suite.TaskLog(ctx, tasks["upload"])).To(And(ContainSubstring("trying again"), ContainSubstring("PUSH_TIMEOUT: 1m0s are over")))
		Expect(results(run)).To(BeEmpty())
	}, SpecTimeout(boundRun))
})

// refresh is golden-image-refresh as a user installs it, for an image of the test's own.
type refresh struct {
	ns, image string
	config    *corev1.ConfigMap
	cron      *batchv1.CronJob
}

// newRefresh installs the refresh with other parameters, suspended: the test says when it is night.
func newRefresh(ctx context.Context, ns string, params map[string]string) *refresh {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(suite.World.Root, "pipelines/golden-image-refresh/refresh.yaml"))
	Expect(err).NotTo(HaveOccurred())
	r := &refresh{ns: ns, image: params["imageName"], config: &corev1.ConfigMap{}, cron: &batchv1.CronJob{}}
	account, role, binding := &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}
	objects := []client.Object{account, role, binding, r.config, r.cron}
	for i, text := range strings.Split(string(data), "\n---\n") {
		Expect(yaml.UnmarshalStrict([]byte(text), objects[i])).To(Succeed())
		objects[i].SetNamespace(ns)
	}
	r.config.Name, r.cron.Name = "refresh-"+r.image, "refresh-"+r.image
	binding.Subjects[0].Namespace = ns
	images, err := suite.World.Images()
	Expect(err).NotTo(HaveOccurred())
	pod := &r.cron.Spec.JobTemplate.Spec.Template.Spec
	pod.Containers[0].Image, pod.Volumes[0].ConfigMap.Name = images["slipway"].Ref, r.config.Name
	pod.Containers[0].Command = append(slices.DeleteFunc(pod.Containers[0].Command, func(arg string) bool { return strings.HasPrefix(arg, "--keep") }), "--keep=1")
	r.cron.Spec.Suspend = new(true)
	r.params(params)
	for _, object := range objects {
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
		}, NodeTimeout(suite.BoundEnd))
		suite.Create(ctx, object)
	}
	return r
}

// params puts other parameters into the run that is started.
func (r *refresh) params(params map[string]string) {
	GinkgoHelper()
	run := &tektonv1.PipelineRun{}
	Expect(yaml.UnmarshalStrict([]byte(r.config.Data["run.yaml"]), run)).To(Succeed())
	run.GenerateName, run.Spec.Params = r.image+"-refresh-", nil
	for _, name := range slices.Sorted(maps.Keys(params)) {
		run.Spec.Params = append(run.Spec.Params, tektonv1.Param{Name: name, Value: *tektonv1.NewStructuredValues(params[name])})
	}
	text, err := yaml.Marshal(run)
	Expect(err).NotTo(HaveOccurred())
	r.config.Data["run.yaml"] = string(text)
}

// night does what kubectl create job --from=cronjob does, waits for the Job's end and returns the
// volume that the DataSource names then.
func (r *refresh) night(ctx context.Context, name string) string {
	GinkgoHelper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.ns, Name: r.cron.Name + "-" + name, Annotations: map[string]string{"cronjob.kubernetes.io/instantiate": "manual"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
		},
		Spec: r.cron.Spec.JobTemplate.Spec,
	}
	suite.Create(ctx, job)
	var ended batchv1.JobCondition
	err := suite.World.Await(ctx, GinkgoWriter, job, boundRun, func(object client.Object) (string, bool, error) {
		for _, condition := range object.(*batchv1.Job).Status.Conditions {
			if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
				ended = condition
				return string(condition.Type), true, nil
			}
		}
		return "runs", false, nil
	})
	Expect(err).NotTo(HaveOccurred())
	if ended.Type != batchv1.JobComplete {
		suite.World.Dump(ctx, GinkgoWriter, r.ns)
		Fail("the Job failed: " + ended.Message)
	}
	source := &cdiv1.DataSource{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: r.image}, source)).To(Succeed())
	Expect(source.Spec.Source.PVC).NotTo(BeNil())
	return source.Spec.Source.PVC.Name
}

// volumes are the image's volumes.
func (r *refresh) volumes(ctx context.Context) []string {
	GinkgoHelper()
	var list cdiv1.DataVolumeList
	Expect(suite.World.Client.List(ctx, &list, client.InNamespace(r.ns), client.MatchingLabels{"slipway-vm.github.io/golden-image": r.image})).To(Succeed())
	var all []string
	for _, dv := range list.Items {
		if dv.DeletionTimestamp == nil {
			all = append(all, dv.Name)
		}
	}
	return all
}

var _ = Describe("golden-image-refresh", Label(publishing), func() {
	It("makes a new volume in a night with a change, and keeps VMs of older ones", func(ctx context.Context) {
		ns, image := tasksNamespace(ctx), "nightly-"+rand.String(5)
		DeferCleanup(func(ctx context.Context) { removeImage(ctx, ns, image) }, NodeTimeout(2*suite.BoundEnd))
		params := map[string]string{
			"imageURL": serveGuest(ctx, "small"), "imageName": image, "diskSize": "256Mi", "guestUser": "root", "virtCommands": "write /etc/night:first\n",
			"checkScript": "grep -q first /etc/night", "defaultInstancetype": "u1.small", "defaultPreference": "debian",
		}
		r := newRefresh(ctx, ns, params)

		By("the first night")
		first := r.night(ctx, "first")
		Expect(r.volumes(ctx)).To(ConsistOf(first))

		By("making a VM of it")
		disk := fixture.DataVolume(ns, image+"-vm", "256Mi", fixture.CloneOf(ns, first))
		vm := fixture.VM(ns, image+"-vm", fixture.Claim("root", disk.Name))
		for _, object := range []client.Object{vm, disk} {
			DeferCleanup(func(ctx context.Context) {
				Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, object))).To(Succeed())
			}, NodeTimeout(suite.BoundEnd))
		}
		suite.Create(ctx, disk, vm)
		suite.VMStatus(ctx, ns, vm.Name, virtv1.VirtualMachineStatusRunning)

		By("a night without a change, which makes nothing")
		Expect(r.night(ctx, "second")).To(Equal(first))
		Expect(r.volumes(ctx)).To(ConsistOf(first))

		By("a night with a change")
		params["virtCommands"], params["checkScript"] = "write /etc/night:third\n", "grep -q third /etc/night"
		r.params(params)
		Expect(suite.World.Client.Update(ctx, r.config)).To(Succeed())
		third := r.night(ctx, "third")
		Expect(third).NotTo(Equal(first))
		Expect(r.volumes(ctx)).To(ConsistOf(third), "with --keep=1 the first night's volume stays")
		suite.VMStatus(ctx, ns, vm.Name, virtv1.VirtualMachineStatusRunning)
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(disk), &corev1.PersistentVolumeClaim{})).To(Succeed(), "the VM of an older image lost its disk")
	}, SpecTimeout(2*time.Hour))
})
