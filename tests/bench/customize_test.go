//go:build e2e

package bench

import (
	"fmt"
	"io"
	"testing"

	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tests/bench/goal"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// pairs is how often each side of a comparison runs, by turns; the medians count.
const pairs = 3

// customization is what both sides do to the disk.
const customization = "write /etc/motd:measured\nhostname measured\n"

// BenchmarkCustomize compares disk-virt-customize, which keeps its result in the step cache, with
// virt-customize alone in the same image. Each works on a clone of its own of one disk.
func BenchmarkCustomize(b *testing.B) {
	c, _ := open(b)
	images, err := c.Images()
	must(b, err)
	for b.Loop() {
		base := fixture.DataVolume(env.NamespaceTasks, "bench-base-"+rand.String(5), "4Gi", fixture.HTTP(serveDebian(b, c)))
		must(b, c.Client.Create(b.Context(), base))
		defer remove(b, c, base)
		filled(b, c, base)
		var bare, task []float64
		for range pairs {
			bare = append(bare, onClone(b, c, base, func(claim string) *tektonv1.TaskRun { return bareCustomize(images["slipway-guestfs"].Ref, claim) }))
			task = append(task, onClone(b, c, base, func(claim string) *tektonv1.TaskRun {
				return taskRun("disk-virt-customize", map[string]string{"pvc": claim, "virtCommands": customization, "cache": "refresh"})
			}))
			fmt.Printf("    virt-customize alone %.0f s, disk-virt-customize %.0f s\n", bare[len(bare)-1], task[len(task)-1])
		}
		must(b, c.Client.DeleteAllOf(b.Context(), &cdiv1.DataVolume{}, client.InNamespace(env.NamespaceTasks), client.HasLabels{stepcache.LabelState}))
		goal.Report(b, "virt-customize alone, its step", median(bare), "s", "-")
		goal.Report(b, "disk-virt-customize, its step", median(task), "s", "-")
		goal.Report(b, "disk-virt-customize over virt-customize alone", 100*(median(task)/median(bare)-1), "%", "<= 10")
	}
}

// filled waits until the DataVolume has its content.
func filled(b *testing.B, c *env.Cluster, dv *cdiv1.DataVolume) {
	b.Helper()
	must(b, c.Await(b.Context(), io.Discard, dv, bound, func(obj client.Object) (string, bool, error) {
		phase := obj.(*cdiv1.DataVolume).Status.Phase
		return string(phase), phase == cdiv1.Succeeded, nil
	}))
}

// onClone runs a task on a new clone of the disk and returns how many seconds its step took.
func onClone(b *testing.B, c *env.Cluster, base *cdiv1.DataVolume, build func(claim string) *tektonv1.TaskRun) float64 {
	b.Helper()
	clone := fixture.DataVolume(base.Namespace, base.Name+"-"+rand.String(5), "4Gi", fixture.CloneOf(base.Namespace, base.Name))
	must(b, c.Client.Create(b.Context(), clone))
	defer remove(b, c, clone)
	filled(b, c, clone)
	run := build(clone.Name)
	run.Spec.PodTemplate = &pod.PodTemplate{SecurityContext: &corev1.PodSecurityContext{FSGroup: ptr.To[int64](names.QEMUUser)}}
	must(b, c.Client.Create(b.Context(), run))
	defer remove(b, c, run)
	awaitPod(b, c, run, corev1.PodSucceeded)
	must(b, c.Await(b.Context(), io.Discard, run, bound, func(obj client.Object) (string, bool, error) {
		run = obj.(*tektonv1.TaskRun)
		return "", run.Status.CompletionTime != nil, nil
	}))
	step := run.Status.Steps[0].Terminated
	return step.FinishedAt.Sub(step.StartedAt.Time).Seconds()
}

// bareCustomize runs virt-customize with nothing around it, in the image and with the rights of the task.
func bareCustomize(image, claim string) *tektonv1.TaskRun {
	run := taskRun("virt-customize", nil)
	run.Spec.ServiceAccountName, run.Spec.TaskRef = "disk-virt-customize-task", nil
	user := int64(names.QEMUUser)
	const script = `printf %s "$COMMANDS" >/scratch/commands; exec virt-customize --format raw --add /disk/disk.img --commands-from-file /scratch/commands`
	run.Spec.TaskSpec = &tektonv1.TaskSpec{
		Steps: []tektonv1.Step{{
			Name: "virt-customize", Image: image, Command: []string{"/bin/sh", "-ec", script},
			Env: []corev1.EnvVar{
				{Name: "COMMANDS", Value: customization}, {Name: "HOME", Value: "/scratch"}, {Name: "TMPDIR", Value: "/scratch"},
			},
			SecurityContext: &corev1.SecurityContext{RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: new(true)},
			VolumeMounts:    []corev1.VolumeMount{{Name: "disk", MountPath: "/disk"}, {Name: "scratch", MountPath: "/scratch"}},
		}},
		Volumes: []corev1.Volume{
			{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
	return run
}
