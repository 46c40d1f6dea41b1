package datavolume

import (
	"crypto/rand"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/registries"
)

// Ways are how a source is reached: the places of an image of a registry, in their order, and the proxy.
type Ways struct {
	Places []registries.Place
	Proxy  cdiconfig.ImportProxy
}

// AskSource has container, which runs /slipway, ask the source of template which version of the image there is, by the ways and with
// the Secrets that an import has; known says that a version is known already. The version is the digest of the result that it ends with.
func AskSource(template *cdiv1.DataVolume, by Ways, known bool, pod *corev1.Pod, container *corev1.Container) {
	container.Command = []string{"/slipway", "import"}
	container.Args = []string{"--ask", "--termination-log=" + corev1.TerminationMessagePathDefault, "--scratch=" + scratchDir}
	if known {
		container.Args = append(container.Args, "--known")
	}
	addVolume(pod, "scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("16Mi"))}})
	mount(container, "scratch", scratchDir, false) // for certificates
	addSource(podInput{DataVolume: template, Places: by.Places, Proxy: by.Proxy, ProxySecret: proxySecretName(pod.Name, by.Proxy)}, pod, container)
}

// ProxySecret returns the Secret that a pod which asks waits for, with what of the proxy not everyone may read; nil where it waits for none.
func ProxySecret(pod *corev1.Pod, set cdiconfig.ImportProxy) *corev1.Secret {
	name := pod.Annotations[annotationProxySecret]
	if name == "" {
		return nil
	}
	return buildProxySecret(pod, name, set)
}

// AwaitsProxy reports whether a pod waits for such a Secret.
func AwaitsProxy(pod *corev1.Pod) bool { return pod.Annotations[annotationProxySecret] != "" }

// proxySecretName names the Secret that a pod waits for; empty where nothing of the proxy is secret.
func proxySecretName(pod string, set cdiconfig.ImportProxy) string {
	if len(set.Authorities) == 0 && !cdiconfig.Secret(set.HTTP) && !cdiconfig.Secret(set.HTTPS) {
		return ""
	}
	return pod + "-" + strings.ToLower(rand.Text()[:8])
}
