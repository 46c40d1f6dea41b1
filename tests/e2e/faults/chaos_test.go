//go:build e2e

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

const (
	// shortChaos is how many kills the suite makes without KILLS: others of the deck each time.
	shortChaos = 20
	// batchLimit is how many kills come before the VMs are waited for, pauseLimit the longest
	// time between two of them.
	batchLimit = 3
	pauseLimit = 1500 * time.Millisecond
)

var _ = Describe("chaos", Label("chaos"), func() {
	It("of kills at random moments loses no VM and nothing that a guest made durable", func(ctx context.Context) {
		if suite.World.Existing {
			Skip("the node of an existing cluster is out of reach")
		}
		seed, kills := number("SEED", uint64(time.Now().UnixNano())), number("KILLS", shortChaos)
		c := newChaos(ctx, seed)
		AddReportEntry("to make the same kills", fmt.Sprintf("make chaos SEED=%d KILLS=%d", seed, kills))
		GinkgoWriter.Printf("make chaos SEED=%d KILLS=%d\n", seed, kills)
		DeferCleanup(func() { AddReportEntry("what was killed", c.said.String()) })

		By("starting the VMs")
		c.start(ctx)
		for c.struck < int(kills) {
			c.batch(ctx, int(kills)-c.struck)
		}
		By("looking at what the guests have on their disks")
		c.checkLogs(ctx)
		By("stopping the VMs and looking for what they left")
		c.stop(ctx)
	}, SpecTimeout(4*time.Hour))
})

// number is a setting of the environment.
func number(name string, otherwise uint64) uint64 {
	GinkgoHelper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	Expect(err).NotTo(HaveOccurred(), "%s=%s is no number", name, text)
	return n
}

// chaos is one run.
type chaos struct {
	ns     string
	dice   *rand.Rand
	deck   []blow
	vms    []*victim
	acks   *acknowledged
	doubts *doubles
	before leftovers
	pods   map[types.UID]string // of launchers, all that were seen
	struck int
	said   sayings
}

// victim is a VM with a writer in its guest.
type victim struct {
	name string
	uid  types.UID // of the VMI that ran last
	over bool      // that VMI was struck by what ends a guest
	pod  types.UID // of its launcher pod that was deleted last; empty where it was struck otherwise since
	file string    // on the node, with the disk
}

// sayings are the kills, in order.
type sayings struct{ text []byte }

func (s *sayings) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.text = append(append(s.text, line...), '\n')
	By(line)
}

func (s *sayings) String() string { return "\n" + string(s.text) }

func newChaos(ctx context.Context, seed uint64) *chaos {
	GinkgoHelper()
	for _, part := range parts {
		waitReady(ctx, part)
	}
	before := lookAround(nil)
	c := &chaos{
		dice: rand.New(rand.NewPCG(seed, 0)), pods: map[types.UID]string{},
		before: before, ns: suite.Namespace(ctx),
		vms: []*victim{{name: "one"}, {name: "two"}, {name: "three"}},
	}
	c.acks = acknowledge(ctx)
	c.doubts = watchDoubles(ctx, c.ns)
	return c
}

// start makes the VMs, each with a disk of its own, the last one on a block device.
func (c *chaos) start(ctx context.Context) {
	GinkgoHelper()
	disk := serveDisk(ctx)
	for i, vm := range c.vms {
		options := []fixture.DataVolumeOption{fixture.HTTP(disk)}
		if i == len(c.vms)-1 {
			options = append(options, fixture.Block())
		}
		suite.Create(ctx, fixture.DataVolume(c.ns, vm.name, "128Mi", options...),
			fixture.VM(c.ns, vm.name, fixture.ContainerDisk(suite.TinyImage()), fixture.Claim("data", vm.name),
				fixture.CloudInit(writer(vm.name, c.acks.url))))
	}
	c.recovered(ctx)
	for _, vm := range c.vms {
		vm.file = diskFile(ctx, c.ns, vm.name)
	}
}

// batch strikes a few times, and waits until every VM is well again.
func (c *chaos) batch(ctx context.Context, limit int) {
	GinkgoHelper()
	for range min(1+c.dice.IntN(batchLimit), limit) {
		if len(c.deck) == 0 {
			c.deck = newDeck(c.dice)
		}
		b := c.deck[0]
		c.deck = c.deck[1:]
		vm := c.vms[c.dice.IntN(len(c.vms))]
		pause := time.Duration(c.dice.Int64N(int64(pauseLimit)))
		c.struck++
		c.said.say("kill %d: %s%s", c.struck, b.what, b.of(vm))
		c.notePods(ctx)
		b.strike(ctx, c, vm)
		wait(ctx, pause)
	}
	c.recovered(ctx)
	c.doubts.expectNone()
}

// wait lets time pass, for a random moment is none of which anything tells.
func wait(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// recovered waits until every VM runs, the same instance where nothing ended it, and its
// guest makes records durable.
func (c *chaos) recovered(ctx context.Context) {
	GinkgoHelper()
	for _, vm := range c.vms {
		since := time.Now()
		found := &virtv1.VirtualMachineInstance{}
		found.Namespace, found.Name = c.ns, vm.name
		err := suite.World.Await(ctx, GinkgoWriter, found, 2*suite.BoundBoot, func(obj client.Object) (string, bool, error) {
			found = obj.(*virtv1.VirtualMachineInstance)
			words := fmt.Sprintf("%.8s %s", found.UID, found.Status.Phase)
			if vm.uid != "" && !vm.over && found.UID != vm.uid {
				return words, false, fmt.Errorf("no guest of VM %s was struck, and its instance %s is gone", vm.name, vm.uid)
			}
			return words, found.Status.Phase == virtv1.Running && (!vm.over || found.UID != vm.uid || c.anew(ctx, vm)), nil
		})
		Expect(err).NotTo(HaveOccurred())
		vm.uid, vm.pod, vm.over = found.UID, "", false
		c.acks.await(ctx, vm.name, since, suite.BoundBoot)
	}
	c.notePods(ctx)
}

// anew says whether the instance of vm runs in another launcher pod than the one that was deleted: one whose guest had not begun gets one.
func (c *chaos) anew(ctx context.Context, vm *victim) bool {
	GinkgoHelper()
	return vm.pod != "" && slices.ContainsFunc(c.launchers(ctx), func(pod corev1.Pod) bool {
		return instanceOf(pod) == vm.uid && pod.UID != vm.pod && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
	})
}

// notePods remembers the launcher pods that there are.
func (c *chaos) notePods(ctx context.Context) {
	GinkgoHelper()
	for _, pod := range c.launchers(ctx) {
		c.pods[pod.UID] = pod.Name
	}
}

func (c *chaos) launchers(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(c.ns), client.MatchingLabels{names.LabelPod: "launcher"})).To(Succeed())
	return pods.Items
}

// stop deletes the VMs, whose guests shut down, and expects clean disks and nothing left.
func (c *chaos) stop(ctx context.Context) {
	GinkgoHelper()
	for _, vm := range c.vms {
		object := fixture.VM(c.ns, vm.name)
		Expect(suite.World.Client.Delete(ctx, object)).To(Succeed())
	}
	for _, vm := range c.vms {
		Expect(suite.World.Gone(ctx, GinkgoWriter, fixture.VM(c.ns, vm.name), suite.BoundEnd)).To(Succeed())
		checkFileSystem(ctx, vm.file)
	}
	c.doubts.expectNone()
	for _, part := range parts {
		waitReady(ctx, part)
	}
	Eventually(func(g Gomega) {
		g.Expect(c.launchers(ctx)).To(BeEmpty(), "launcher pods")
		after := lookAround(c.pods)
		g.Expect(after.processes).To(BeEmpty(), "processes of launcher pods")
		g.Expect(after.mounts).To(BeEmpty(), "mounts of launcher pods")
		g.Expect(after.networks).To(BeNumerically("<=", c.before.networks), "network namespaces, each with the taps of a pod")
	}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
}
