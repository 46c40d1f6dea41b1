package datavolume

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/containers/image/v5/docker/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/proxy"
	"github.com/slipway-vm/slipway/internal/steps"
)

const (
	// annotationProxySecret on an importer pod names the Secret that it waits for: what of the proxy not everyone may
	// read, and the certificates of its authorities.
	annotationProxySecret = names.Domain + "import-proxy"
	volumeProxyCerts      = "proxy-certs"
	proxyCertDir          = "/proxycerts"
	keyAuthorities        = "ca.crt"
	// proxyRetry is when a ConfigMap with authorities that is not there is looked for again: no event comes with it.
	proxyRetry = 30 * time.Second
)

// findProxy says by which proxy the pod reaches its source, if that is on a server. The DataVolume waits while
// authorities that it should trust are missing.
func (r *Reconciler) findProxy(ctx context.Context, s *scope, input *podInput) error {
	if input.Binder || !onServer(s.dv.Spec.Source) {
		return nil
	}
	if err := r.readProxy(ctx, s); err != nil {
		return err
	}
	input.Proxy = *s.proxy
	input.ProxySecret = proxySecretName(PodName(s.dv.Name), input.Proxy)
	return nil
}

// readProxy reads into the scope how servers are reached. The pass ends where that is not known.
func (r *Reconciler) readProxy(ctx context.Context, s *scope) error {
	if s.proxy != nil {
		return nil
	}
	set, err := cdiconfig.Proxy(ctx, r.Client, r.live, r.options.Namespace)
	if err != nil {
		return err
	}
	if set.Fault != nil {
		s.waiting = &obstacle{reasonError, set.Fault.Error()}
		s.result.RequeueAfter = proxyRetry
		return steps.ErrDone
	}
	s.proxy = &set
	return nil
}

// handProxy makes the Secret that the pod waits for. It is the pod's own, and goes with it.
func (r *Reconciler) handProxy(ctx context.Context, s *scope) error {
	if s.pod == nil || s.pod.DeletionTimestamp != nil || s.pod.Status.Phase != corev1.PodPending {
		return nil
	}
	name := s.pod.Annotations[annotationProxySecret]
	if name == "" {
		return nil
	}
	if err := r.readProxy(ctx, s); err != nil {
		return err
	}
	err := r.createBeside(ctx, buildProxySecret(s.pod, name, *s.proxy))
	if apierrors.IsForbidden(err) {
		s.waiting = &obstacle{reasonError, fmt.Sprintf("Secret %s, with the proxy by which pod %s reaches its source, is refused: %v", name, s.pod.Name, err)}
		s.result.RequeueAfter = takenRetry
		return steps.ErrDone
	}
	return err
}

// buildProxySecret returns what pod waits for. All of its keys are there, since the pod may have been made for other
// settings than these, by a controller that came to no more than that.
func buildProxySecret(pod *corev1.Pod, name string, set cdiconfig.ImportProxy) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: name,
			Labels:          map[string]string{labelApp: labelAppValue, labelPodKind: containerImporter, names.LabelManagedBy: names.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{proxy.EnvHTTP: []byte(set.HTTP), proxy.EnvHTTPS: []byte(set.HTTPS), keyAuthorities: set.Authorities},
	}
}

// addProxy tells the container by which proxy it reaches its source, and whom it trusts on that way. What not everyone
// may read who may read pods is in the Secret alone.
func addProxy(in podInput, pod *corev1.Pod, container *corev1.Container) {
	for _, one := range []struct{ name, address string }{{proxy.EnvHTTP, in.Proxy.HTTP}, {proxy.EnvHTTPS, in.Proxy.HTTPS}} {
		switch {
		case one.address == "":
		case cdiconfig.Secret(one.address):
			container.Env = append(container.Env, corev1.EnvVar{Name: one.name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: in.ProxySecret}, Key: one.name,
			}}})
		default:
			container.Env = append(container.Env, corev1.EnvVar{Name: one.name, Value: one.address})
		}
	}
	if in.Proxy.Set() {
		container.Env = append(container.Env, corev1.EnvVar{Name: proxy.EnvNone, Value: in.Proxy.Without(hostsOf(in)...)})
	}
	if len(in.Proxy.Authorities) > 0 {
		addVolume(pod, volumeProxyCerts, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: in.ProxySecret, Items: []corev1.KeyToPath{{Key: keyAuthorities, Path: keyAuthorities}},
		}})
		mount(container, volumeProxyCerts, proxyCertDir, true)
		container.Args = append(container.Args, "--proxy-cert-dir="+proxyCertDir)
	}
	if in.ProxySecret != "" {
		setAll(&pod.Annotations, map[string]string{annotationProxySecret: in.ProxySecret})
	}
}

// hostsOf are the servers that the pod asks first, as the DataVolume names them.
func hostsOf(in podInput) []string {
	var hosts []string
	for _, place := range in.Places {
		host := reference.Domain(place.Image)
		if only, _, err := net.SplitHostPort(host); err == nil {
			host = only
		}
		hosts = append(hosts, host)
	}
	if u, err := url.Parse(addressOf(in.DataVolume.Spec.Source)); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		hosts = append(hosts, u.Hostname())
	}
	return hosts
}

// addressOf is the address of a file on a server; empty for other sources.
func addressOf(source *cdiv1.DataVolumeSource) string {
	switch {
	case source.HTTP != nil:
		return source.HTTP.URL
	case source.S3 != nil:
		return source.S3.URL
	case source.GCS != nil:
		return source.GCS.URL
	}
	return ""
}
