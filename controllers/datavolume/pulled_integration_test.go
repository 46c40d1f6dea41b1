//go:build integration

package datavolume_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/transfer"
)

func nodePulls(t *testing.T, w *world) {
	w.create("disk", "fast", &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
		URL: new("docker://registry.example.com/disks/debian:12"), PullMethod: new(cdiv1.RegistryPullNode), SecretRef: new("login"),
	}}, nil)
	w.bind("disk")
	pod := w.pod("disk")
	container := pod.Spec.Containers[0]
	if container.Image != "registry.example.com/disks/debian:12" || !slices.Contains(container.Args, "--image-root=/") || len(pod.Spec.InitContainers) != 1 {
		t.Errorf("the importer runs in %s, with %v, after %d others", container.Image, container.Args, len(pod.Spec.InitContainers))
	}
	if secrets := pod.Spec.ImagePullSecrets; len(secrets) != 1 || secrets[0].Name != "login" {
		t.Errorf("the kubelet pulls with %v", secrets)
	}
	const words = `Back-off pulling image "registry.example.com/disks/debian:12": unauthorized`
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "program", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "importer", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: words}},
	}}
	w.must(w.Status().Update(t.Context(), pod))
	w.until("the DataVolume says why the image is not pulled", func() bool {
		running := condition(w.dv("disk"), cdiv1.DataVolumeRunning)
		return running.Reason == "ImagePullBackOff" && running.Message == words
	})
	w.phase("disk", cdiv1.ImportScheduled)

	refused := transfer.Failed(transfer.Errorf(transfer.WrongFormat, "docker://registry.example.com/disks/debian:12 holds no file below /disk"))
	w.play("disk", corev1.PodRunning, 1, &refused)
	dv := w.phase("disk", cdiv1.Failed)
	if running := condition(dv, cdiv1.DataVolumeRunning); !strings.Contains(running.Message, "no file below /disk") {
		t.Errorf("Running is %+v", running)
	}
	w.podGone("disk")
}
