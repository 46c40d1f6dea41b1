package expose

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	virtv1 "kubevirt.io/api/core/v1"
)

// service builds the Service that leads to the object.
func (o *options) service(of target, found exposed) (*corev1.Service, error) {
	selector := found.selector()
	if len(selector) == 0 {
		return nil, fmt.Errorf("cannot expose %s without any label: %s; %s", of.word, of.name, label[of.kind])
	}
	ports := o.ports(found.spec)
	if len(ports) == 0 {
		return nil, fmt.Errorf("couldn't find port via --%s flag or introspection: no interface of %s on the pod network lists ports; give --%s", flagPort, of, flagPort)
	}
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: of.namespace, Name: o.name},
		Spec: corev1.ServiceSpec{
			Type: o.serviceType, Selector: selector, Ports: ports,
			ClusterIP: o.clusterIP, IPFamilies: o.families, IPFamilyPolicy: o.policy,
		},
	}
	if o.externalIP != "" {
		service.Spec.ExternalIPs = []string{o.externalIP}
	}
	return service, nil
}

// label says what to do about an object without labels.
var label = map[kind]string{
	virtualMachine: "add one to spec.template.metadata.labels and restart the VM",
	instance:       "add one to the template of its VM and restart that, or make the VMI with one",
	replicaSet:     "add one to spec.selector.matchLabels and to the template",
}

// ports are the one of the flags, or those that the interface on the pod network lists.
func (o *options) ports(spec *virtv1.VirtualMachineInstanceSpec) []corev1.ServicePort {
	if o.port != 0 {
		port := corev1.ServicePort{Name: o.portName, Protocol: o.protocol, Port: o.port}
		if o.targetPort != "" {
			port.TargetPort = intstr.Parse(o.targetPort)
		}
		return []corev1.ServicePort{port}
	}
	return listed(spec)
}

// listed are the ports of the interface on the pod network.
func listed(spec *virtv1.VirtualMachineInstanceSpec) []corev1.ServicePort {
	pod := slices.IndexFunc(spec.Networks, func(n virtv1.Network) bool { return n.Pod != nil })
	if pod < 0 {
		return nil
	}
	interfaces := spec.Domain.Devices.Interfaces
	i := slices.IndexFunc(interfaces, func(i virtv1.Interface) bool { return i.Name == spec.Networks[pod].Name })
	if i < 0 {
		return nil
	}
	var ports []corev1.ServicePort
	for n, port := range interfaces[i].Ports {
		ports = append(ports, corev1.ServicePort{Name: fmt.Sprintf("port-%d", n+1), Protocol: corev1.Protocol(port.Protocol), Port: port.Port})
	}
	return ports
}
