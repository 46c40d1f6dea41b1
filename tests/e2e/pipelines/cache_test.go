//go:build e2e

package pipelines

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"knative.dev/pkg/apis"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// boundRun is how long a run with a guest may take under emulation.
const boundRun = 30 * time.Minute

var _ = Describe("the step cache", func() {
	It("leaves nothing to do when nothing changed, and the rest when something did", func(ctx context.Context) {
		ns := tasksNamespace(ctx)
		image := "cached-" + rand.String(5)
		DeferCleanup(func(ctx context.Context) { removeImage(ctx, ns, image) }, NodeTimeout(2*suite.BoundEnd))
		params := map[string]string{
			"imageURL": serveGuest(ctx, "small"), "imageName": image, "diskSize": "256Mi", "guestUser": "root", "virtCommands": "write /etc/motd:first\n",
			"checkScript": "grep -q first /etc/motd", "defaultInstancetype": "u1.small", "defaultPreference": "debian",
		}

		By("building the image")
		first := goldenImage(ctx, ns, params)
		Expect(first.tasks).To(ContainElements("restore", "import", "customize", "check", "publish"))
		Expect(first.tasks).NotTo(ContainElement("clean-up"), "the check left its VM")
		Expect(first.results).To(HaveKeyWithValue("upToDate", "false"))
		Expect(entries(ctx, ns)).NotTo(BeEmpty(), "the steps kept no result")

		By("running again with nothing changed")
		second := goldenImage(ctx, ns, params)
		Expect(second.tasks).To(Equal([]string{"restore"}), "tasks ran though nothing changed")
		Expect(second.results).To(And(HaveKeyWithValue("upToDate", "true"), HaveKeyWithValue("volume", first.results["volume"]), HaveKeyWithValue("imageName", image)))

		By("changing a line of the customization")
		params["virtCommands"], params["checkScript"] = "write /etc/motd:second\n", "grep -q second /etc/motd"
		third := goldenImage(ctx, ns, params)
		Expect(third.tasks).NotTo(ContainElement("import"))
		Expect(third.tasks).To(ContainElements("restore", "customize", "check", "publish"))

		By("listing and pruning what is kept")
		Expect(virtctl(ctx, "cache", "ls", "-n", ns)).To(ContainSubstring("virt-customize"))
		Expect(virtctl(ctx, "cache", "prune", "-n", ns, "--keep", "0", "--dry-run")).NotTo(ContainSubstring(") deleted"))
	}, SpecTimeout(2*time.Hour))
})

// serveGuest serves a test guest's disk under one URL until the test ends.
func serveGuest(ctx context.Context, name string) string {
	GinkgoHelper()
	disk, err := suite.World.Guest(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, err := suite.World.Serve(serving, http.FileServer(http.Dir(filepath.Dir(disk))))
	Expect(err).NotTo(HaveOccurred())
	return root + "/" + filepath.Base(disk)
}

// built is what a run of golden-image came to: its results, and the pipeline tasks that ran, by name.
type built struct {
	results map[string]string
	tasks   []string
}

// goldenImage runs the pipeline as the run to copy does, with other values, and waits until it has succeeded.
func goldenImage(ctx context.Context, ns string, params map[string]string) built {
	GinkgoHelper()
	run := ended(ctx, ns, "golden-image", params)
	if !run.Status.GetCondition(apis.ConditionSucceeded).IsTrue() {
		suite.World.Dump(ctx, GinkgoWriter, ns)
		Fail("the PipelineRun failed: " + run.Status.GetCondition(apis.ConditionSucceeded).Message)
	}
	b := built{results: map[string]string{}}
	for _, result := range run.Status.Results {
		b.results[result.Name] = result.Value.StringVal
	}
	var taskRuns tektonv1.TaskRunList
	Expect(suite.World.Client.List(ctx, &taskRuns, client.InNamespace(ns), client.MatchingLabels{"tekton.dev/pipelineRun": run.Name})).To(Succeed())
	for _, taskRun := range taskRuns.Items {
		b.tasks = append(b.tasks, taskRun.Labels["tekton.dev/pipelineTask"])
	}
	slices.Sort(b.tasks)
	GinkgoWriter.Printf("%s took %s: %s\n", run.Name, run.Status.CompletionTime.Sub(run.Status.StartTime.Time), strings.Join(b.tasks, " "))
	return b
}

// entries are the entries of the namespace's cache.
func entries(ctx context.Context, ns string) []stepcache.Entry {
	GinkgoHelper()
	var volumes cdiv1.DataVolumeList
	Expect(suite.World.Client.List(ctx, &volumes, client.InNamespace(ns), client.HasLabels{stepcache.LabelState})).To(Succeed())
	return stepcache.Entries(volumes.Items)
}

// virtctl runs the user's program on the cluster and returns what it printed.
func virtctl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "go", append([]string{"run", "./cmd/virtctl"}, args...)...)
	command.Dir, command.Env, command.Stderr = suite.World.Root, append(os.Environ(), "KUBECONFIG="+suite.World.Kubeconfig), GinkgoWriter
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// removeImage deletes what the test published and what it left in the cache.
func removeImage(ctx context.Context, ns, image string) {
	if CurrentSpecReport().Failed() {
		suite.World.Dump(ctx, GinkgoWriter, ns)
	}
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: image}}
	Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, source))).To(Succeed())
	all := &cdiv1.DataVolume{}
	Expect(suite.World.Client.DeleteAllOf(ctx, all, client.InNamespace(ns), client.MatchingLabels{"slipway-vm.github.io/golden-image": image})).To(Succeed())
	Expect(suite.World.Client.DeleteAllOf(ctx, all, client.InNamespace(ns), client.HasLabels{stepcache.LabelState})).To(Succeed())
}
