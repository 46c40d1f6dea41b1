//go:build e2e

// Package network tests how guests reach others and are reached.
package network

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestNetwork(t *testing.T) { suite.Run(t, "network") }

var _ = Describe("a guest behind masquerade and one on a bridge", func() {
	It("have a lease, reach services by name, and are reached at their pods' addresses and through a Service", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "server", fixture.ContainerDisk(suite.TinyImage()))
		vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = virtv1.InterfaceBindingMethod{Bridge: &virtv1.InterfaceBridge{}}
		vm.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "server"}
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "server"},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "server"}, Ports: []corev1.ServicePort{{Port: 22}}},
		}
		suite.Create(ctx, vm, service, fixture.VM(ns, "client", fixture.ContainerDisk(suite.TinyImage())))
		server, client := suite.RunningVMI(ctx, ns, "server"), suite.RunningVMI(ctx, ns, "client")

		// says waits until a command in a guest says something: parts of it may still be starting, and others too busy to answer it.
		says := func(guest *virtv1.VirtualMachineInstance, command string) AsyncAssertion {
			return Eventually(ctx, func() (string, error) {
				return env.Shell(ctx, guest.Status.Interfaces[0].IP, command, suite.BoundBoot)
			}, suite.BoundBoot, time.Second)
		}

		By("reading the lease in the guest")
		says(client, "ip -4 addr show dev eth0").Should(ContainSubstring("inet 10.0.2.2/24"))
		says(client, "cat /etc/resolv.conf").Should(ContainSubstring(ns + ".svc.cluster.local"))

		By("reading the lease on the bridge, which is the pod's address")
		nic := server.Status.Interfaces[0]
		says(server, "ip addr show dev eth0").Should(And(ContainSubstring("inet "+nic.IP+"/"), ContainSubstring("link/ether "+nic.MAC)))

		By("asking the cluster's DNS for the API server")
		for _, guest := range []*virtv1.VirtualMachineInstance{client, server} {
			says(guest, "nslookup kubernetes.default.svc.cluster.local").Should(ContainSubstring("kubernetes.default.svc.cluster.local"))
		}

		By("reaching the other guest at its pod's address and through its Service")
		for _, host := range []string{server.Status.Interfaces[0].IP, "server." + ns + ".svc.cluster.local"} {
			// A guest's agent answers before its SSH server does.
			says(client, "nc -w 20 "+host+" 22 </dev/null 2>&1 | head -c 4").Should(Equal("SSH-"), "what %s answers at port 22", host)
		}
		Expect(server.Labels).To(HaveKeyWithValue("app", "server"))
		Expect(server.Labels).NotTo(HaveKey(names.LabelPod))
	}, SpecTimeout(25*time.Minute))
})
