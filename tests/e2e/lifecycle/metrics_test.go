//go:build e2e

package lifecycle

import (
	"context"
	"maps"
	"regexp"
	"slices"
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
			Eventually(ctx, func(g Gomega) {
				g.Expect(scrape(ctx, g, service, component, "")).To(ContainSubstring("process_resident_memory_bytes"), component)
			}, suite.BoundEnd, time.Second).Should(Succeed())
		}

		By("asking its node's virt-handler")
		handler := func(g Gomega) string { return scrape(ctx, g, service, "virt-handler", vmi.Status.NodeName) }
		used := 0.0
		Eventually(ctx, func(g Gomega) { // a launcher that is too busy to answer is left out
			before := handler(g)
			used = value(before, "kubevirt_vmi_cpu_usage_seconds_total", vmi)
			g.Expect(value(before, "slipway_vmi_measured", vmi)).To(Equal(1.0))
			g.Expect(used).To(BeNumerically(">", 0))
		}, suite.BoundEnd, time.Second).Should(Succeed())
		suite.Shell(ctx, vmi, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
		given := float64(vmi.Spec.Domain.Memory.Guest.Value())
		Eventually(ctx, func(g Gomega) {
			after := handler(g)
			g.Expect(value(after, "kubevirt_vmi_cpu_usage_seconds_total", vmi)).To(BeNumerically(">", used))
			g.Expect(value(after, "kubevirt_vmi_memory_domain_bytes", vmi)).To(Equal(given))
			available := value(after, "kubevirt_vmi_memory_available_bytes", vmi)
			g.Expect(available).To(And(BeNumerically(">", given/4), BeNumerically("<=", given)))
			g.Expect(value(after, "kubevirt_vmi_memory_usable_bytes", vmi)).To(And(BeNumerically(">", 0), BeNumerically("<", available)))
			g.Expect(value(after, "kubevirt_vmi_storage_read_traffic_bytes_total", vmi, `drive="root"`)).To(BeNumerically(">", 1<<20))
			g.Expect(value(after, "kubevirt_vmi_network_receive_bytes_total", vmi)).To(BeNumerically(">", 0))
			g.Expect(value(after, "kubevirt_vmi_node_cpu_affinity", vmi)).To(BeNumerically(">=", 1))
			// It is left alone for a minute when it was slow.
			g.Expect(value(after, "kubevirt_vmi_guest_load_1m", vmi)).To(BeNumerically(">", 0), "the load that the guest's agent tells")
		}, suite.BoundEnd, time.Second).Should(Succeed())

		By("asking virt-controller")
		Eventually(ctx, func(g Gomega) {
			told := scrape(ctx, g, service, "virt-controller", "")
			g.Expect(value(told, "kubevirt_vmi_info", vmi, `phase="running"`, `node="`+vmi.Status.NodeName+`"`)).To(Equal(1.0))
			g.Expect(value(told, "kubevirt_vm_info", vmi, `status="running"`, `status_group="running"`)).To(Equal(1.0))
			since := value(told, "kubevirt_vm_running_status_last_transition_timestamp_seconds", vmi)
			g.Expect(time.Since(time.Unix(int64(since), 0))).To(BeNumerically("<", time.Hour))
			g.Expect(told).To(ContainSubstring(`kubevirt_vmi_phase_transition_time_from_creation_seconds_count{phase="Running"}`))
			g.Expect(told).To(ContainSubstring(`kubevirt_number_of_vms{namespace="` + ns + `"} 1`))
			g.Expect(told).To(ContainSubstring("workqueue_depth{"))
		}, suite.BoundEnd, time.Second).Should(Succeed())
	}, SpecTimeout(20*time.Minute))
})

// scrape returns what a pod of component tells, on node unless that is empty, through the API server.
func scrape(ctx context.Context, g Gomega, service *corev1.Service, component, node string) string {
	var pods corev1.PodList
	labels := client.MatchingLabels{"kubevirt.io": component}
	maps.Copy(labels, service.Spec.Selector)
	g.Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(service.Namespace), labels)).To(Succeed())
	at := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && (node == "" || pod.Spec.NodeName == node)
	})
	g.Expect(at).To(BeNumerically(">=", 0), "no pod of %s runs", component)
	pod := &pods.Items[at]
	data, err := suite.World.Kube.CoreV1().Pods(pod.Namespace).ProxyGet("https", pod.Name, metricsPort(pod), "metrics", nil).DoRaw(ctx)
	g.Expect(err).NotTo(HaveOccurred(), "asking pod %s: %s", pod.Name, data)
	return string(data)
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
