// Package guestid is what a guest is known by that follows from the name of its machine where
// the machine's spec does not say it.
package guestid

import (
	"crypto/sha256"
	"net"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// AnnotationName on a VMI, and on the template of its VM, is the name by which the guest goes on
// being known after its VM was renamed: cloud-init's instance id and the file of UEFI's
// variables have it.
const AnnotationName = names.Domain + "guest-name"

// Name is the name by which vmi's guest is known: its annotation's, else vmi's own. A value that
// is no name of an object counts as none, so it is safe in a path.
func Name(vmi metav1.Object) string {
	name := vmi.GetAnnotations()[AnnotationName]
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return vmi.GetName()
	}
	return name
}

// MACFollows says whether the address of an interface whose spec has none follows from its machine's name. On a bridge
// it is the pod's, another one at each start.
func MACFollows(nic *virtv1.Interface) bool {
	return nic.MacAddress == "" && nic.Bridge == nil
}

// MAC is the hardware address of the interface nic of the machine that vmi names, where nic's spec
// has none and it is not on a bridge: always the same, unicast and locally administered.
func MAC(namespace, vmi, nic string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(namespace + "/" + vmi + "/" + nic))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}
