package create

import (
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// place is the name of an object that belongs to a namespace or to the whole cluster.
type place struct {
	name, namespace string
	namespaced      bool
}

func (p *place) addFlags(flags *pflag.FlagSet, what string) {
	flags.StringVar(&p.name, "name", "", "Name of the "+what+"; a random one when left out.")
	flags.BoolVar(&p.namespaced, "namespaced", false, "Make it one of a namespace, and not of the cluster.")
}

// ofCluster says that the object belongs to no namespace.
func (p *place) ofCluster() bool { return !p.namespaced && p.namespace == "" }

func (p *place) meta(prefix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: nameOr(p.name, prefix), Namespace: p.namespace}
}
