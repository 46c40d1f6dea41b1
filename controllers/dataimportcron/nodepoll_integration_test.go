//go:build integration

package dataimportcron_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// answer plays the kubelet of the pod that asks for the image of a DataImportCron, and waits until the pod has gone.
func (w *world) answer(cron, imageID string, state corev1.ContainerState) {
	w.t.Helper()
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: w.namespace, Name: "poll-" + cron}
	w.until("a pod asks for the image", func() bool { return w.Get(w.t.Context(), key, pod) == nil })
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "poll", ImageID: imageID, State: state}}
	w.must(w.Status().Update(w.t.Context(), pod))
	w.until("the pod goes", func() bool {
		now := &corev1.Pod{}
		err := w.Get(w.t.Context(), key, now)
		return apierrors.IsNotFound(err) || now.UID != pod.UID
	})
}

// imported is what an importer ends with.
var imported = transfer.Result{Digest: "slipway1:00"}

func TestNodesAreAskedForTheImageThatTheyPull(t *testing.T) {
	w := start(t)
	w.create("cron", func(cron *cdiv1.DataImportCron) {
		cron.Spec.Schedule = "@every 1m" // so that the test's time does not leave the API server's, by which pods are made, far behind
		cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
			URL: new("docker://registry.example.com/disks/debian:12"), PullMethod: new(cdiv1.RegistryPullNode), SecretRef: new("login"),
		}}
	})
	w.until("it says what it waits for", func() bool {
		for _, c := range w.cron("cron").Status.Conditions {
			if c.Type == cdiv1.DataImportCronUpToDate {
				return c.Reason == "NoDigest" && strings.Contains(c.Message, "Pod poll-cron")
			}
		}
		return false
	})
	w.answer("cron", "", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "unauthorized"}})
	w.until("it says what the kubelet does", func() bool {
		for _, c := range w.cron("cron").Status.Conditions {
			if c.Type == cdiv1.DataImportCronUpToDate {
				return c.Reason == "NoDigest" && strings.Contains(c.Message, "ImagePullBackOff: unauthorized")
			}
		}
		return false
	})
	digests := []string{"sha256:" + strings.Repeat("01", 32), "sha256:" + strings.Repeat("02", 32)}
	ran := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	var before []string
	for _, digest := range digests {
		w.later(2*time.Minute, "", "cron")
		w.answer("cron", "registry.example.com/disks/debian@"+digest, ran)
		dv := w.importing("cron", before...)
		if from := dv.Spec.Source.Registry; *from.URL != "docker://registry.example.com/disks/debian@"+digest || *from.PullMethod != cdiv1.RegistryPullNode || *from.SecretRef != "login" {
			t.Errorf("what is imported is %+v", from)
		}
		before = append(before, string(dv.UID))
		if digest == digests[0] { // an import under way stays; the next one waits for it
			w.end(dv.Name, imported)
			w.until("the DataSource names the image", func() bool { _, claim := w.source(); return claim == dv.Name })
		}
	}
}

// TestAPodAsksWithSecrets has the kubelet played for a pod that asks a registry with a password.
func TestAPodAsksWithSecrets(t *testing.T) {
	w := start(t)
	w.create("cron", func(cron *cdiv1.DataImportCron) {
		cron.Spec.Schedule = "@every 1m" // as above
		cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
			URL: new("docker://registry.example.com/disks/debian:12"), SecretRef: new("login"),
		}}
	})
	says := func(words string) {
		t.Helper()
		w.until("it says "+words, func() bool {
			for _, c := range w.cron("cron").Status.Conditions {
				if c.Type == cdiv1.DataImportCronUpToDate {
					return c.Reason == "NoDigest" && strings.Contains(c.Message, words)
				}
			}
			return false
		})
	}
	says("Pod poll-cron asks the source")
	ends := func(result transfer.Result) {
		t.Helper()
		message, err := result.Encode()
		w.must(err)
		w.answer("cron", "", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(message)}})
	}
	ends(transfer.Result{Reason: transfer.Unauthorized, Message: "the registry lets nobody in"})
	says("Unauthorized: the registry lets nobody in")
	w.later(2*time.Minute, "", "cron")
	digest := "sha256:" + strings.Repeat("01", 32)
	ends(transfer.Result{Digest: digest})
	dv := w.importing("cron")
	if from := dv.Spec.Source.Registry; *from.URL != "docker://registry.example.com/disks/debian@"+digest || *from.SecretRef != "login" {
		t.Errorf("what is imported is %+v", from)
	}
}
