package virtualmachineexport

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/certs"
)

const public = "exports.example.com"

// ingress leads a host to a Service.
func ingress(name, host, service string, change func(*networkingv1.Ingress)) *networkingv1.Ingress {
	one := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name}}
	one.Spec.Rules = []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
		Paths: []networkingv1.HTTPIngressPath{{Path: "/", Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service}}}},
	}}}}
	if change != nil {
		change(one)
	}
	return one
}

func TestOnlyGoodCertificatesAreTold(t *testing.T) {
	now := time.Now()
	of := func(host string, at time.Time) certs.Issued {
		t.Helper()
		issued, err := certs.Alone([]string{host}, time.Hour, at)
		if err != nil {
			t.Fatal(err)
		}
		return issued
	}
	mine, wild, other, former := of(public, now), of("*.example.com", now), of("other.example.org", now), of(public, now.Add(-2*time.Hour))
	file := func(parts ...[]byte) (all []byte) {
		for _, part := range parts {
			all = append(all, part...)
		}
		return all
	}
	for sentence, c := range map[string]struct{ data, want []byte }{
		"nothing":                      {nil, nil},
		"no certificate":               {[]byte("none"), nil},
		"with who vouches for it":      {file(mine.Bundle, other.Cert, mine.Cert), file(mine.Cert, mine.Bundle)},
		"for many hosts":               {file(other.Bundle, wild.Cert), wild.Cert},
		"with its key":                 {file(mine.Cert, mine.Key), mine.Cert},
		"none for the host":            {file(other.Cert, mine.Bundle), file(other.Cert, mine.Bundle)},
		"one that is over, and a good": {file(former.Cert, former.Bundle, mine.Cert), mine.Cert},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := certificatesFor(public, c.data, now); got != strings.TrimSpace(string(c.want)) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// publishedBy passes over an export that is ready, with objects in the installation's namespace.
func (w *workshop) publishedBy(t *testing.T, objects ...client.Object) *exportv1.VirtualMachineExportLink {
	t.Helper()
	w.mustPass(t, 0)
	w.put(objects...)
	w.objects["*v1.Pod virt-export-e"].(*corev1.Pod).Status = running(corev1.ConditionTrue).Status
	return newStatus(w.mustPass(t, 0)).Links.External
}

func TestExternalLinksLeadThroughTheProxy(t *testing.T) {
	issued, err := certs.Alone([]string{public}, 24*time.Hour, began)
	if err != nil {
		t.Fatal(err)
	}
	another, err := certs.Alone([]string{"exports.apps.example.com"}, 24*time.Hour, began)
	if err != nil {
		t.Fatal(err)
	}
	route := &routev1.Route{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	route.Spec.To.Name = "virt-exportproxy"
	route.Status.Ingress = []routev1.RouteIngress{{Host: "exports.apps.example.com"}}
	pending := route.DeepCopy()
	pending.Name, pending.Status.Ingress = "0", nil
	byRoute := []client.Object{ingress("a", "web.example.com", "web", nil), route, pending, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(issued.Bundle)}}}
	for sentence, c := range map[string]struct {
		objects           []client.Object
		told              []byte // what the administrator says; nil where there is no file
		host, certificate string
	}{
		"by nothing":         {nil, issued.Cert, "", ""},
		"by an Ingress":      {[]client.Object{ingress("a", public, "virt-exportproxy", nil), route}, nil, public, ""},
		"with a certificate": {[]client.Object{ingress("a", public, "virt-exportproxy", nil)}, append(issued.Key, issued.Cert...), public, string(issued.Cert)},
		"with an authority":  {[]client.Object{ingress("a", public, "virt-exportproxy", nil)}, issued.Bundle, public, string(issued.Bundle)},
		"by the first of two": {
			[]client.Object{ingress("b", "b.example.com", "virt-exportproxy", nil), ingress("a", public, "virt-exportproxy", nil)}, nil, public, "",
		},
		"by a Route":                    {byRoute, nil, "exports.apps.example.com", string(issued.Bundle)},
		"by a Route with a certificate": {byRoute, another.Cert, "exports.apps.example.com", string(another.Cert)},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorkshop("root")
			w.options.Certificate = filepath.Join(t.TempDir(), "tls.crt")
			if c.told != nil {
				if err := os.WriteFile(w.options.Certificate, c.told, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			link := w.publishedBy(t, c.objects...)
			if c.host == "" {
				if link != nil {
					t.Errorf("got %+v", link)
				}
				return
			}
			base := "https://" + c.host + "/api/export.kubevirt.io/v1/namespaces/shop/virtualmachineexports/e"
			if link == nil || link.Volumes[0].Formats[0].Url != base+"/volumes/root/disk.img" || link.Cert != strings.TrimSpace(c.certificate) {
				t.Fatalf("got %+v", link)
			}
			if link.Manifests[0].Url != base+"/external/manifests/all" || link.Manifests[1].Url != base+"/external/manifests/secret" {
				t.Errorf("the definition is at %+v", link.Manifests)
			}
		})
	}
}

// What cannot be read must not be taken for nothing to trust: clients would trust whom their system does. Those within the cluster
// need none of it.
func TestWhatCannotBeReadLeavesTheLinksAsTheyWere(t *testing.T) {
	for sentence, spoil := range map[string]func(*testing.T, *workshop){
		"a certificate": func(t *testing.T, w *workshop) {
			w.options.Certificate = t.TempDir()
			w.put(ingress("a", public, "virt-exportproxy", nil))
		},
		"Ingresses": func(_ *testing.T, w *workshop) { w.refuses["list *v1.IngressList"] = errors.New("away") },
		"Routes":    func(_ *testing.T, w *workshop) { w.refuses["list *v1.RouteList"] = errors.New("forbidden") },
		"authorities": func(_ *testing.T, w *workshop) {
			w.put(&routev1.Route{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: routev1.RouteSpec{To: routev1.RouteTargetReference{Name: "virt-exportproxy"}}, Status: routev1.RouteStatus{Ingress: []routev1.RouteIngress{{Host: public}}}})
			w.refuses["get *v1.ConfigMap"] = errors.New("away")
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorkshop("root")
			w.mustPass(t, 0)
			w.objects["*v1.Pod virt-export-e"].(*corev1.Pod).Status = running(corev1.ConditionTrue).Status
			spoil(t, w)
			for _, former := range []*exportv1.VirtualMachineExportLink{nil, {Cert: "former"}} {
				if former != nil {
					w.export.Status = &exportv1.VirtualMachineExportStatus{Links: &exportv1.VirtualMachineExportLinks{External: former}}
				}
				s, err := w.pass(t, 0)
				if err != nil {
					t.Fatal(err)
				}
				status := newStatus(s)
				if status.Phase != exportv1.Ready || status.Links.Internal == nil || !reflect.DeepEqual(status.Links.External, former) || s.next().RequeueAfter > retry {
					t.Errorf("%s, with %+v, and again in %s", status.Phase, status.Links, s.next().RequeueAfter)
				}
			}
		})
	}
}

func TestWithoutRoutesThereIsNone(t *testing.T) {
	w := newWorkshop("root")
	w.mustPass(t, 0)
	w.objects["*v1.Pod virt-export-e"].(*corev1.Pod).Status = running(corev1.ConditionTrue).Status
	w.refuses["list *v1.RouteList"] = &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Route"}}
	w.export.Status = &exportv1.VirtualMachineExportStatus{Links: &exportv1.VirtualMachineExportLinks{External: &exportv1.VirtualMachineExportLink{Cert: "former"}}}
	s := w.mustPass(t, 0)
	if external := newStatus(s).Links.External; external != nil || s.next().RequeueAfter <= retry {
		t.Errorf("%+v, and again in %s", external, s.next().RequeueAfter)
	}
}

func TestAnExportIsNotPublishedBeforeItIsReady(t *testing.T) {
	w := newWorkshop("root")
	w.put(ingress("a", public, "virt-exportproxy", nil))
	if s := w.mustPass(t, 0); s.published.Host != "" || newStatus(s).Links != nil {
		t.Errorf("got %+v", s.published)
	}
	if requests := w.ofIngress(t.Context(), nil); len(requests) != 1 || requests[0].Name != "e" {
		t.Errorf("requests %v", requests)
	}
}
