//go:build e2e

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// parts are Slipway's own pods.
var parts = []string{"virt-operator", "virt-api", "virt-controller", "virt-handler"}

// standstill is how long a process that is stopped stays so.
const standstill = 4 * time.Second

// blow is one way to kill.
type blow struct {
	what string
	// part is the component that is struck; empty for a VM's own processes and pods.
	part   string
	strike func(ctx context.Context, c *chaos, vm *victim)
}

// of names whom the blow strikes.
func (b blow) of(vm *victim) string {
	if b.part != "" {
		return " of " + b.part
	}
	return " of VM " + vm.name
}

// newDeck are twenty blows in an order by dice, a quarter of which end a guest: a boot takes long
// under emulation. No process of a component is killed twice without its pod having been replaced
// between, on the average, for the kubelet lets such a one wait for longer and longer.
func newDeck(dice *rand.Rand) []blow {
	var deck []blow
	add := func(n int, b blow) {
		for range n {
			deck = append(deck, b)
		}
	}
	add(2, killPart("virt-handler"))
	add(2, deletePart("virt-handler"))
	add(2, killPart("virt-controller"))
	add(1, deletePart("virt-controller"))
	add(1, killPart("virt-api"))
	add(1, deletePart("virt-api"))
	add(1, killPart("virt-operator"))
	add(3, signal("libvirtd", "SIGKILL to libvirtd", syscall.SIGKILL, false))
	add(1, pauseProcess("libvirtd"))
	add(1, pauseProcess("virt-launcher"))
	add(1, signal("qemu-system", "SIGKILL to QEMU", syscall.SIGKILL, true))
	add(1, signal("virt-launcher", "SIGKILL to virt-launcher", syscall.SIGKILL, true))
	add(2, deleteLauncher("deletion of the launcher pod without grace", ptr.To[int64](0)))
	add(1, deleteLauncher("deletion of the launcher pod", nil))
	dice.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// killPart kills the process in the pod of a component.
func killPart(part string) blow {
	return blow{what: "SIGKILL to the process", part: part, strike: func(ctx context.Context, _ *chaos, _ *victim) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			struck := 0
			for _, pod := range podsOf(ctx, part) {
				for _, p := range processesOf(pod.UID) {
					if p.program() == "slipway" {
						g.Expect(syscall.Kill(p.pid, syscall.SIGKILL)).To(Succeed())
						struck++
					}
				}
			}
			g.Expect(struck).To(BeNumerically(">", 0), "processes of %s", part)
		}).WithContext(ctx).WithTimeout(backOffLimit).WithPolling(100 * time.Millisecond).Should(Succeed())
	}}
}

// backOffLimit is more than the kubelet's longest pause, 5 minutes, before it starts again what
// ended often.
const backOffLimit = 7 * time.Minute

func deletePart(part string) blow {
	return blow{what: "deletion of the pod without grace", part: part, strike: func(ctx context.Context, _ *chaos, _ *victim) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			var pods corev1.PodList
			g.Expect(suite.World.Client.List(ctx, &pods, inInstall(), client.MatchingLabels{"kubevirt.io": part})).To(Succeed())
			g.Expect(pods.Items).NotTo(BeEmpty(), "pods of %s", part)
			for i := range pods.Items {
				err := suite.World.Client.Delete(ctx, &pods.Items[i], &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
				g.Expect(client.IgnoreNotFound(err)).To(Succeed())
			}
		}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(100 * time.Millisecond).Should(Succeed())
	}}
}

// signal sends a signal to a program of the VM's launcher pod.
func signal(program, what string, signal syscall.Signal, endsGuest bool) blow {
	return blow{what: what, strike: func(ctx context.Context, c *chaos, vm *victim) {
		GinkgoHelper()
		pid, uid := c.process(ctx, vm, program)
		if endsGuest {
			vm.uid, vm.pod, vm.over = uid, "", true
		}
		Expect(syscall.Kill(pid, signal)).To(Or(Succeed(), Equal(syscall.ESRCH)), "the blow before may end it just now")
	}}
}

// pauseProcess lets a program stand still for a while.
func pauseProcess(program string) blow {
	return blow{what: fmt.Sprintf("SIGSTOP for %s to %s", standstill, program), strike: func(ctx context.Context, c *chaos, vm *victim) {
		GinkgoHelper()
		pid, _ := c.process(ctx, vm, program)
		gone := Or(Succeed(), Equal(syscall.ESRCH))
		Expect(syscall.Kill(pid, syscall.SIGSTOP)).To(gone)
		defer func() { Expect(syscall.Kill(pid, syscall.SIGCONT)).To(gone) }()
		wait(ctx, standstill)
	}}
}

func deleteLauncher(what string, grace *int64) blow {
	return blow{what: what, strike: func(ctx context.Context, c *chaos, vm *victim) {
		GinkgoHelper()
		pod := c.launcher(ctx, vm)
		vm.uid, vm.pod, vm.over = instanceOf(pod), pod.UID, true
		Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, &pod, &client.DeleteOptions{GracePeriodSeconds: grace}))).To(Succeed())
	}}
}

// launcher is the pod of the VM's instance, waited for.
func (c *chaos) launcher(ctx context.Context, vm *victim) corev1.Pod {
	GinkgoHelper()
	var found corev1.Pod
	Eventually(func(g Gomega) {
		for _, pod := range c.launchers(ctx) {
			if pod.Annotations[virtv1.DomainAnnotation] == vm.name && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				found = pod
				return
			}
		}
		g.Expect(vm.name).To(BeEmpty(), "no launcher pod of the VM")
	}).WithContext(ctx).WithTimeout(suite.BoundBoot).WithPolling(100 * time.Millisecond).Should(Succeed())
	return found
}

// instanceOf is the VMI of a launcher pod.
func instanceOf(pod corev1.Pod) types.UID { return types.UID(pod.Labels[virtv1.CreatedByLabel]) }

// process is the number of a program in the launcher pod of a VM's instance, waited for: the VM
// may be on its way back from the blow before.
func (c *chaos) process(ctx context.Context, vm *victim, program string) (found int, instance types.UID) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found = 0
		pod := c.launcher(ctx, vm)
		instance = instanceOf(pod)
		for _, p := range processesOf(pod.UID) {
			if strings.HasPrefix(p.program(), program) && (program != "qemu-system" || strings.Contains(p.line, "guest="+c.ns+"_"+vm.name+",")) {
				found = p.pid
			}
		}
		g.Expect(found).NotTo(BeZero(), "no process %s of VM %s", program, vm.name)
	}).WithContext(ctx).WithTimeout(suite.BoundBoot).WithPolling(100 * time.Millisecond).Should(Succeed())
	return found, instance
}

// process is a process of the node.
type process struct {
	pid  int
	line string // its arguments
}

func (p process) program() string { return filepath.Base(strings.Fields(p.line + " ?")[0]) }

// processesOf are those in the cgroups of a pod.
func processesOf(pod types.UID) []process {
	plain, slice := "/pod"+string(pod), "pod"+strings.ReplaceAll(string(pod), "-", "_")+".slice"
	return processes(func(dir string) bool {
		cgroups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		return err == nil && (strings.Contains(string(cgroups), plain) || strings.Contains(string(cgroups), slice))
	})
}

// processes are those that keep approves of by their folder in /proc.
func processes(keep func(dir string) bool) []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // fails only for a bad pattern
	var found []process
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 || !keep(dir) {
			continue // gone, or a zombie
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			found = append(found, process{pid: pid, line: strings.ReplaceAll(string(line), "\x00", " ")})
		}
	}
	return found
}

// leftovers are what pods leave on a node that does not clean up.
type leftovers struct {
	processes []process
	mounts    []string
	networks  int // namespaces
}

// lookAround looks for what the pods left.
func lookAround(pods map[types.UID]string) leftovers {
	GinkgoHelper()
	var found leftovers
	for uid := range pods {
		found.processes = append(found.processes, processesOf(uid)...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(mounts)) {
		at := strings.Fields(line)[4]
		if strings.Contains(at, "/netns/cni-") {
			found.networks++
		}
		for uid := range pods {
			if strings.Contains(at, string(uid)) {
				found.mounts = append(found.mounts, at)
			}
		}
	}
	return found
}
