//go:build e2e

package lifecycle

import (
	"context"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("metrics", func() {
	It("tell what a VM uses and how it is", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "metered", fixture.ContainerDisk(suite.TinyImage()), fixture.EmptyDisk("scratch", "64Mi")))
		vmi := suite.RunningVMI(ctx, ns, "metered")
		suite.VMStatus(ctx, ns, "metered", virtv1.VirtualMachineStatusRunning)

		By("finding all who tell by the Service")
		service := &corev1.Service{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: names.InstallNamespace, Name: "kubevirt-prometheus-metrics"}, service)).To(Succeed())
		Expect(service.Labels).To(HaveKeyWithValue("prometheus.kubevirt.io", "true"))
		for _, component := range []string{"virt-handler", "virt-controller", "virt-api"} {
			Expect(scrape(ctx, service, component, "")).To(ContainSubstring("process_resident_memory_bytes"), component)
		}

		By("asking its node's virt-handler")
		handler := func() string { return scrape(ctx, service, "virt-handler", vmi.Status.NodeName) }
		Eventually(func() string { return handler() }, time.Minute, time.Second).Should(ContainSubstring("kubevirt_vmi_memory_usable_bytes{"))
		before := handler()
		Expect(value(before, "slipway_vmi_measured", vmi)).To(Equal(1.0))
		suite.Shell(ctx, vmi, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
		Eventually(func() float64 { return value(handler(), "kubevirt_vmi_cpu_usage_seconds_total", vmi) }, time.Minute, time.Second).
			Should(BeNumerically(">", value(before, "kubevirt_vmi_cpu_usage_seconds_total", vmi)))
		after := handler()
		given := float64(vmi.Spec.Domain.Memory.Guest.Value())
		Expect(value(after, "kubevirt_vmi_memory_domain_bytes", vmi)).To(Equal(given))
		available := value(after, "kubevirt_vmi_memory_available_bytes", vmi)
		Expect(available).To(And(BeNumerically(">", given/4), BeNumerically("<=", given)))
		Expect(value(after, "kubevirt_vmi_memory_usable_bytes", vmi)).To(And(BeNumerically(">", 0), BeNumerically("<", available)))
		Expect(value(after, "kubevirt_vmi_storage_read_traffic_bytes_total", vmi, `drive="root"`)).To(BeNumerically(">", 1<<20))
		Expect(value(after, "kubevirt_vmi_network_receive_bytes_total", vmi)).To(BeNumerically(">", 0))
		Expect(value(after, "kubevirt_vmi_node_cpu_affinity", vmi)).To(BeNumerically(">=", 1))
		Eventually(func() float64 { return value(handler(), "kubevirt_vmi_guest_load_1m", vmi) }, 3*time.Minute, time.Second).
			Should(BeNumerically(">", 0), "the load that the guest's agent tells, which is left alone for a minute when it was slow")

		By("asking virt-controller")
		Eventually(func() float64 {
			return value(scrape(ctx, service, "virt-controller", ""), "kubevirt_vmi_info", vmi, `phase="running"`, `node="`+vmi.Status.NodeName+`"`)
		}, time.Minute, time.Second).Should(Equal(1.0))
		told := scrape(ctx, service, "virt-controller", "")
		Expect(value(told, "kubevirt_vm_info", vmi, `status="running"`, `status_group="running"`)).To(Equal(1.0))
		since := value(told, "kubevirt_vm_running_status_last_transition_timestamp_seconds", vmi)
		Expect(time.Since(time.Unix(int64(since), 0))).To(BeNumerically("<", time.Hour))
		Expect(told).To(ContainSubstring(`kubevirt_vmi_phase_transition_time_from_creation_seconds_count{phase="Running"}`))
		Expect(told).To(ContainSubstring(`kubevirt_number_of_vms{namespace="` + ns + `"} 1`))
		Expect(told).To(ContainSubstring("workqueue_depth{"))
	}, SpecTimeout(10*time.Minute))
})

// scrape returns what a pod of component tells, on node unless that is empty, through the API server.
func scrape(ctx context.Context, service *corev1.Service, component, node string) string {
	GinkgoHelper()
	var pods corev1.PodList
	labels := client.MatchingLabels{"kubevirt.io": component}
	maps.Copy(labels, service.Spec.Selector)
	Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(service.Namespace), labels)).To(Succeed())
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning || node != "" && pod.Spec.NodeName != node {
			continue
		}
		port := metricsPort(&pod)
		data, err := suite.World.Kube.CoreV1().Pods(pod.Namespace).ProxyGet("https", pod.Name, port, "metrics", nil).DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred(), "asking pod %s: %s", pod.Name, data)
		return string(data)
	}
	Fail("there is no running pod of " + component)
	return ""
}

func metricsPort(pod *corev1.Pod) string {
	GinkgoHelper()
	for _, port := range pod.Spec.Containers[0].Ports {
		if port.Name == "metrics" {
			return strconv.Itoa(int(port.ContainerPort))
		}
	}
	Fail("pod " + pod.Name + " has no port metrics")
	return ""
}

// value is the first series of a metric that is of the VM and has all further labels; -1 when there is none.
func value(told, metric string, vmi *virtv1.VirtualMachineInstance, further ...string) float64 {
	GinkgoHelper()
	wanted := append([]string{`namespace="` + vmi.Namespace + `"`, `name="` + vmi.Name + `"`}, further...)
	for _, series := range regexp.MustCompile(`(?m)^`+metric+`\{(.*)\} (\S+)$`).FindAllStringSubmatch(told, -1) {
		matches := true
		for _, label := range wanted {
			matches = matches && strings.Contains(","+series[1]+",", ","+label+",")
		}
		if matches {
			number, err := strconv.ParseFloat(series[2], 64)
			Expect(err).NotTo(HaveOccurred())
			return number
		}
	}
	return -1
}
