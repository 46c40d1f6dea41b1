//go:build integration

package datavolume_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/registries"
	"github.com/slipway-vm/slipway/internal/transfer"
)

func looksWhereRegistriesConfSays(t *testing.T, w *world) {
	cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: names.CDIName, Annotations: map[string]string{names.AnnotationRegistries: "mirrors"}}}
	w.must(w.Create(t.Context(), cdi))
	t.Cleanup(func() { w.deleted(cdi) })
	w.seen(cdi)
	from := &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://quay.io/disks/debian:12")}}
	w.create("disk", "local", from, nil)
	w.phase("disk", cdiv1.WaitForFirstConsumer)
	chosen := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"n1"}}}`))
	w.must(w.Patch(t.Context(), w.claim("disk"), chosen))

	says := func(words ...string) {
		t.Helper()
		w.until("the DataVolume says "+strings.Join(words, ", "), func() bool {
			running := condition(w.dv("disk"), cdiv1.DataVolumeRunning)
			return running.Reason == "Error" && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(running.Message, word) })
		})
	}
	again := func(round string) { // rather than in half a minute
		t.Helper()
		w.must(w.Patch(t.Context(), w.dv("disk"), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"round":"`+round+`"}}}`))))
	}
	says("ConfigMap "+installed+"/mirrors", "does not exist")
	conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: "mirrors"}, Data: map[string]string{registries.Key: "location"}}
	w.must(w.Create(t.Context(), conf))
	t.Cleanup(func() { w.must(w.Delete(context.WithoutCancel(t.Context()), conf)) })
	again("1")
	says(registries.Key+" of ConfigMap "+installed+"/mirrors", "line 1")
	conf.Data[registries.Key] = "[[registry]]\nlocation = \"quay.io\"\nblocked = true\n"
	w.must(w.Update(t.Context(), conf))
	again("2")
	says("blocked")
	conf.Data[registries.Key] += "[[registry.mirror]]\nlocation = \"mirror.example.com/quay\"\n"
	w.must(w.Update(t.Context(), conf))
	again("3")
	if args := w.pod("disk").Spec.Containers[0].Args; !slices.Contains(args, "--from=docker://mirror.example.com/quay/disks/debian:12") || slices.Contains(args, "--from=docker://quay.io/disks/debian:12") {
		t.Errorf("the importer is told %v", args)
	}
	w.phase("disk", cdiv1.ImportScheduled)

	w.bind("disk")
	failed := &transfer.Result{Reason: transfer.ConnectionLost, Message: "no route", Retryable: true}
	w.play("disk", corev1.PodRunning, 1, failed)
	w.until("the failure is told", func() bool {
		running := condition(w.dv("disk"), cdiv1.DataVolumeRunning)
		return running.Reason == "Error" && strings.Contains(running.Message, "no route")
	})
	before := w.pod("disk")
	if again("4"); w.pod("disk").UID != before.UID {
		t.Error("the pod is made anew for the settings that it has")
	}
	conf.Data[registries.Key] = strings.Replace(conf.Data[registries.Key], "mirror.example.com", "other.example.com", 1)
	w.must(w.Update(t.Context(), conf))
	again("5")
	w.until("there is a pod that looks elsewhere", func() bool {
		now := w.pod("disk")
		return now.UID != before.UID && slices.Contains(now.Spec.Containers[0].Args, "--from=docker://other.example.com/quay/disks/debian:12")
	})
}
