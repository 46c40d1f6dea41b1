//go:build integration

package datavolume_test

import (
	"context"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/names"
)

func goesByTheProxy(t *testing.T, w *world) {
	cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: names.CDIName}}
	cdi.Spec.Config = &cdiv1.CDIConfigSpec{ImportProxy: &cdiv1.ImportProxy{
		HTTPProxy: new("http://importer:pa55word@proxy.example.com:3128"), NoProxy: new("internal.example.com"), TrustedCAProxy: new("authorities"),
	}}
	w.must(w.Create(t.Context(), cdi))
	t.Cleanup(func() { w.deleted(cdi) })
	w.seen(cdi)
	w.create("disk", "fast", http(), nil)
	w.until("the DataVolume misses the authorities", func() bool {
		running := condition(w.dv("disk"), cdiv1.DataVolumeRunning)
		return running.Reason == "Error" && strings.Contains(running.Message, "ConfigMap "+installed+"/authorities, which importProxy.trustedCAProxy names, does not exist")
	})
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("one")}))
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}))
	authorities := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: "authorities"}, Data: map[string]string{"ca.pem": key + certificate}}
	w.must(w.Create(t.Context(), authorities))
	t.Cleanup(func() { w.must(w.Delete(context.WithoutCancel(t.Context()), authorities)) })
	again := func(round string) { // rather than in half a minute
		t.Helper()
		w.must(w.Patch(t.Context(), w.dv("disk"), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"round":"`+round+`"}}}`))))
	}
	again("1")
	pod := w.pod("disk")
	secret := w.proxySecret(pod)
	wantProxy(t, pod, secret)
	if string(secret.Data["http_proxy"]) != *cdi.Spec.Config.ImportProxy.HTTPProxy || string(secret.Data["ca.crt"]) != certificate {
		t.Errorf("the Secret has %q", secret.Data)
	}
	if !metav1.IsControlledBy(secret, pod) {
		t.Errorf("the Secret is of %+v", secret.OwnerReferences)
	}
	w.phase("disk", cdiv1.ImportScheduled)

	w.must(w.Delete(t.Context(), secret)) // as if the controller had come no further than the pod
	again("2")
	if anew := w.proxySecret(pod); anew.Name != secret.Name || anew.UID == secret.UID || len(anew.Data) != 3 {
		t.Errorf("after the pod alone was made there is %+v", anew)
	}
	var events eventsv1.EventList
	w.must(w.List(t.Context(), &events, client.InNamespace(w.namespace)))
	told, err := yaml.Marshal(events)
	w.must(err)
	if all := w.all() + string(told); strings.Contains(all, "pa55word") {
		t.Errorf("the password is in\n%s", all)
	}

	w.create("empty", "fast", &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, nil)
	if blank := w.pod("empty"); len(blank.Annotations) > 0 || len(blank.Spec.Containers[0].Env) != 1 {
		t.Errorf("a pod that asks no server is told of the proxy: %+v", blank)
	}
}

// proxySecret waits for the Secret that a pod waits for.
func (w *world) proxySecret(pod *corev1.Pod) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	w.until("the pod's Secret exists", func() bool {
		key := client.ObjectKey{Namespace: w.namespace, Name: pod.Annotations["slipway-vm.github.io/import-proxy"]}
		return w.Get(w.t.Context(), key, secret) == nil
	})
	return secret
}

// wantProxy checks what the pod is told.
func wantProxy(t *testing.T, pod *corev1.Pod, secret *corev1.Secret) {
	t.Helper()
	container := pod.Spec.Containers[0]
	env := map[string]corev1.EnvVar{}
	for _, one := range container.Env {
		env[one.Name] = one
	}
	from := env["http_proxy"].ValueFrom
	if from == nil || from.SecretKeyRef == nil || from.SecretKeyRef.Name != secret.Name || from.SecretKeyRef.Key != "http_proxy" {
		t.Errorf("http_proxy is %+v", env["http_proxy"])
	}
	if _, there := env["https_proxy"]; there || env["no_proxy"].Value != "internal.example.com,.svc,.cluster.local" {
		t.Errorf("the environment is %+v", container.Env)
	}
	if !slices.Contains(container.Args, "--proxy-cert-dir=/proxycerts") {
		t.Errorf("the importer is told %v", container.Args)
	}
}
