//go:build integration

package datavolume_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

func uploadSource() *cdiv1.DataVolumeSource {
	return &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
}

// server waits for the upload server's pod of a DataVolume.
func (w *world) server(dv string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	w.until("the upload server of "+dv+" exists", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: upload.ServerName(dv)}, pod) == nil
	})
	return pod
}

// secret waits for the certificate that the pod waits for.
func (w *world) secret(pod *corev1.Pod) *corev1.Secret {
	w.t.Helper()
	name := ""
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret != nil {
			name = volume.Secret.SecretName
		}
	}
	secret := &corev1.Secret{}
	w.until("Secret "+name+" exists", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, secret) == nil
	})
	return secret
}

// playServer plays the kubelet of an upload server.
func (w *world) playServer(dv string, phase corev1.PodPhase, last *transfer.Result) {
	w.t.Helper()
	pod := w.server(dv)
	pod.Status.Phase = phase
	pod.Status.PodIP, pod.Status.PodIPs = "127.0.0.1", []corev1.PodIP{{IP: "127.0.0.1"}} // where nobody answers
	status := corev1.ContainerStatus{Name: "cdi-upload-server"}
	ready := corev1.ConditionTrue
	if last != nil {
		message, err := last.Encode()
		w.must(err)
		status.State.Terminated = &corev1.ContainerStateTerminated{Message: string(message)}
		ready = corev1.ConditionFalse
	} else {
		status.State.Running = &corev1.ContainerStateRunning{}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	w.must(w.Status().Update(w.t.Context(), pod))
}

func uploadSucceeds(t *testing.T, w *world) {
	w.create("disk.1", "local", uploadSource(), nil)
	w.phase("disk.1", cdiv1.WaitForFirstConsumer)
	w.create("disk", "local", uploadSource(), func(dv *cdiv1.DataVolume) { dv.Annotations = map[string]string{names.AnnotationBind: ""} })
	w.phase("disk", cdiv1.UploadScheduled)
	w.bind("disk")
	pod := w.server("disk")
	claim := w.claim("disk")
	if _, target := claim.Annotations[upload.AnnotationTarget]; !target {
		t.Errorf("the claim is no target: %v", claim.Annotations)
	}
	w.checkCertificates(pod)
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: w.namespace, Name: "cdi-upload-disk"}
	w.until("the Service exists", func() bool { return w.Get(t.Context(), key, service) == nil })
	for name, value := range service.Spec.Selector {
		if pod.Labels[name] != value {
			t.Errorf("the Service's selector %s=%s leads elsewhere", name, value)
		}
	}
	w.playServer("disk", corev1.PodRunning, nil)
	dv := w.phase("disk", cdiv1.UploadReady)
	if c := condition(dv, cdiv1.DataVolumeReady); c.Status != corev1.ConditionFalse {
		t.Errorf("Ready is %+v", c)
	}
	if claim := w.claim("disk"); claim.Annotations[upload.AnnotationReady] != "true" {
		t.Errorf("the claim does not say that an image may come: %v", claim.Annotations)
	}
	w.playServer("disk", corev1.PodSucceeded, &transfer.Result{Digest: "slipway1:00", DiskSize: 1 << 30})
	dv = w.phase("disk", cdiv1.Succeeded)
	if c := condition(dv, cdiv1.DataVolumeRunning); dv.Status.Progress != "100.0%" || c.Message != "Upload Complete" || dv.Annotations[names.AnnotationDigest] != "slipway1:00" {
		t.Errorf("the DataVolume is %+v", dv)
	}
	w.until("pod and Service are gone", func() bool {
		podErr := w.Get(t.Context(), key, &corev1.Pod{})
		serviceErr := w.Get(t.Context(), key, &corev1.Service{})
		return apierrors.IsNotFound(podErr) && apierrors.IsNotFound(serviceErr)
	})
	if claim := w.claim("disk"); claim.Annotations[upload.AnnotationReady] == "true" || claim.Annotations["cdi.kubevirt.io/storage.pod.phase"] != "Succeeded" {
		t.Errorf("the claim says %v", claim.Annotations)
	}
}

// checkCertificates checks that the pod's server and cdi-uploadproxy will know each other.
func (w *world) checkCertificates(pod *corev1.Pod) {
	w.t.Helper()
	secret := w.secret(pod)
	if by := metav1.GetControllerOf(secret); by == nil || by.UID != pod.UID {
		w.t.Errorf("the Secret is owned by %+v", by)
	}
	proxy := &corev1.Secret{}
	w.until("the proxy has a certificate", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: installed, Name: upload.ClientSecret}, proxy) == nil
	})
	if len(proxy.Data["ca.key"]) > 0 || len(secret.Data["ca.key"]) > 0 {
		w.t.Error("the authority's key is given away")
	}
	verify := func(shown, trusting *corev1.Secret, options x509.VerifyOptions) {
		w.t.Helper()
		pair, err := tls.X509KeyPair(shown.Data["tls.crt"], shown.Data["tls.key"])
		w.must(err)
		options.Roots = x509.NewCertPool()
		options.Roots.AppendCertsFromPEM(trusting.Data["ca.crt"])
		if _, err := pair.Leaf.Verify(options); err != nil {
			w.t.Errorf("%s is not believed: %v", shown.Name, err)
		}
	}
	verify(secret, proxy, x509.VerifyOptions{DNSName: "cdi-upload-disk." + w.namespace + ".svc"})
	verify(proxy, secret, x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// A server of an authority that is not the newest would not know the proxy's next certificate.
func uploadServerIsReplaced(t *testing.T, w *world) {
	w.create("disk", "fast", uploadSource(), nil)
	w.bind("disk")
	w.playServer("disk", corev1.PodRunning, nil)
	w.phase("disk", cdiv1.UploadReady)
	old := w.server("disk")
	const annotation = names.Domain + "upload-authority"
	if old.Annotations[annotation] == "" {
		t.Fatal("the pod does not say whose certificate it has")
	}
	before := w.secret(old)
	changed := old.DeepCopy()
	changed.Annotations[annotation] = "an older one"
	w.must(w.Patch(t.Context(), changed, client.MergeFrom(old)))
	var now *corev1.Pod
	w.until("another server is there", func() bool { now = w.server("disk"); return now.UID != old.UID })
	if after := w.secret(now); bytes.Equal(after.Data["tls.key"], before.Data["tls.key"]) || after.Name == before.Name {
		t.Error("the new server has the old one's key")
	}
	w.until("the claim says that no image may come", func() bool { return w.claim("disk").Annotations[upload.AnnotationReady] != "true" })

	// One that speaks TLS as was said before is replaced, too.
	w.playServer("disk", corev1.PodRunning, nil)
	w.config(cdiv1.CDIConfigSpec{TLSSecurityProfile: &cdiv1.TLSSecurityProfile{Type: cdiv1.TLSProfileModernType}})
	w.until("a server that speaks TLS 1.3 is there", func() bool {
		newest := w.server("disk")
		return newest.UID != now.UID && slices.Contains(newest.Spec.Containers[0].Args, "--tls-min-version=VersionTLS13")
	})
}

// A Service of somebody else's would lead the images away, however ready the server is.
func uploadServiceIsTaken(t *testing.T, w *world) {
	key := client.ObjectKey{Namespace: w.namespace, Name: "cdi-upload-disk"}
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	w.must(w.Create(t.Context(), foreign))
	w.create("disk", "fast", uploadSource(), nil)
	w.bind("disk")
	w.playServer("disk", corev1.PodRunning, nil)
	dv := &cdiv1.DataVolume{}
	w.until("the DataVolume says that the Service is taken, and that its server runs", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "disk"}, dv))
		return w.claim("disk").Annotations["cdi.kubevirt.io/storage.pod.phase"] == "Running"
	})
	if claim := w.claim("disk"); dv.Status.Phase == cdiv1.UploadReady || claim.Annotations[upload.AnnotationReady] == "true" {
		t.Errorf("it is %s, the claim says %v", dv.Status.Phase, claim.Annotations)
	}
	w.must(w.Delete(t.Context(), foreign))
	w.phase("disk", cdiv1.UploadReady)
	service := &corev1.Service{}
	w.must(w.Get(t.Context(), key, service))
	w.must(w.Delete(t.Context(), service))
	changed := dv.DeepCopy()
	changed.Annotations = map[string]string{"example.com/touched": ""} // whatever brings a pass
	w.must(w.Patch(t.Context(), changed, client.MergeFrom(dv)))
	w.until("the Service is there again", func() bool { return w.Get(t.Context(), key, &corev1.Service{}) == nil })
}
