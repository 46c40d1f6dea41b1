package outside

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestAnIngressSaysWhereAServiceIs(t *testing.T) {
	const ours = "virt-exportproxy"
	for sentence, c := range map[string]struct {
		ingress *networkingv1.Ingress
		want    string
	}{
		"to another Service": {ingress("a", public, "web", nil), ""},
		"to ours":            {ingress("a", public, ours, nil), public},
		"at any host":        {ingress("a", "", ours, nil), ""},
		"at many hosts":      {ingress("a", "*.example.com", ours, nil), ""},
		"to ours at the other": {ingress("a", "", ours, func(i *networkingv1.Ingress) {
			i.Spec.Rules = append(i.Spec.Rules, ingress("", public, ours, nil).Spec.Rules...)
		}), public},
		"to ours by default": {ingress("a", public, ours, func(i *networkingv1.Ingress) {
			i.Spec.Rules[0].HTTP = nil
			i.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: ours}}
		}), public},
		"to another by default": {ingress("a", public, ours, func(i *networkingv1.Ingress) {
			i.Spec.Rules[0].HTTP = nil
			i.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web"}}
		}), ""},
		"to a resource": {ingress("a", public, ours, func(i *networkingv1.Ingress) {
			i.Spec.Rules[0].HTTP.Paths[0].Backend = networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Name: ours}}
		}), ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := hostOfIngress(c.ingress, ours); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
