//go:build e2e

package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

const (
	// importerKills is how often the importer of each disk is killed, of which there are two.
	importerKills = 10
	// A disk of 32 MiB, of which each connection gets 4 MiB a second, so that an importer is at it for longer than it is left alive.
	killedSize, killedRate = 32 << 20, 4 << 20
	// killedAfter is the longest time that an importer is left alive.
	killedAfter = 2 * time.Second
)

// The label is that of what stops nothing but its own processes.
var _ = Describe("an importer that is killed", Label("still"), func() {
	It("twenty times at random moments is followed by one that makes the whole disk", func(ctx context.Context) {
		if suite.World.Existing {
			Skip("the node of an existing cluster is out of reach")
		}
		seed := GinkgoRandomSeed()
		AddReportEntry("to kill at the same moments", fmt.Sprintf("-ginkgo.seed=%d", seed))
		GinkgoWriter.Printf("-ginkgo.seed=%d\n", seed)
		disks := map[string][]fixture.DataVolumeOption{"file": nil, "device": {fixture.Block()}}
		server := newHeldImage("/file", "/device")
		serving, stop := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(stop)
		root, err := suite.World.Serve(serving, server)
		Expect(err).NotTo(HaveOccurred())

		ns := suite.Namespace(ctx)
		for name, options := range disks {
			suite.Create(ctx, fixture.DataVolume(ns, name, "64Mi", append(options, fixture.HTTP(root+"/"+name))...),
				fixture.DataVolume(ns, "undisturbed-"+name, "64Mi", append(options, fixture.HTTP(root+"/undisturbed"))...))
		}
		var killing sync.WaitGroup
		for n, name := range []string{"file", "device"} {
			killing.Go(func() {
				defer GinkgoRecover()
				k := &killer{ns: ns, disk: name, dice: rand.New(rand.NewPCG(uint64(seed), uint64(n)))}
				for at := range importerKills {
					pod, pid := k.next(ctx)
					if at == importerKills-1 {
						server.release("/" + name) // the last one may have the disk all but whole
					}
					k.kill(ctx, pod, pid)
				}
			})
		}
		killing.Wait()
		for name := range disks {
			expectWhole(ctx, ns, name)
		}
		Eventually(func() ([]string, error) { return podsIn(ctx, ns) }).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).
			Should(BeEmpty(), "importers go when their work is done")
	}, SpecTimeout(20*time.Minute))
})

// expectWhole waits until a disk is there that is the same as the one which nobody disturbed, by what the importer says as by what is on the node.
func expectWhole(ctx context.Context, ns, name string) {
	GinkgoHelper()
	want := suite.DataVolume(ctx, ns, "undisturbed-"+name, cdiv1.Succeeded).Annotations[names.AnnotationDigest]
	Expect(want).NotTo(BeEmpty())
	dv := suite.DataVolume(ctx, ns, name, cdiv1.Succeeded)
	Expect(dv.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, want))
	path := diskFile(ctx, ns, name)
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	info, err := file.Stat()
	Expect(err).NotTo(HaveOccurred())
	Expect(digest.Of(ctx, file, info.Size(), 2)).To(Equal(want), "the disk of %s", name)
	if filepath.Base(path) != names.DiskFile {
		return // a device
	}
	beside, err := os.ReadDir(filepath.Dir(path))
	Expect(err).NotTo(HaveOccurred())
	Expect(beside).To(HaveLen(1), "what killed importers left beside %s", path)
}

// killer kills the importers of one disk, one after the other.
type killer struct {
	ns, disk string
	dice     *rand.Rand
	kills    int
	// pid and pod are those that were killed last.
	pid int
	pod types.UID
}

// kill kills an importer at a random moment. Only the first process of a pod is killed by itself, for the kubelet would start the
// third one after a pause; the second goes with its pod, which has time to end or not.
func (k *killer) kill(ctx context.Context, pod corev1.Pod, pid int) {
	GinkgoHelper()
	after := time.Duration(k.dice.Int64N(int64(killedAfter)))
	grace := []*int64{nil, ptr.To[int64](0)}[k.dice.IntN(2)]
	wait(ctx, after)
	k.kills++
	if k.kills%2 == 1 {
		GinkgoWriter.Printf("kill %d of %s: SIGKILL to process %d after %s\n", k.kills, k.disk, pid, after)
		k.pid = pid
		Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Or(Succeed(), Equal(syscall.ESRCH)), "it may have met the one before and begin anew")
		return
	}
	GinkgoWriter.Printf("kill %d of %s: deletion of the pod after %s, without grace: %t\n", k.kills, k.disk, after, grace != nil)
	k.pod = pod.UID
	err := suite.World.Client.Delete(ctx, &pod, client.Preconditions{UID: &pod.UID}, &client.DeleteOptions{GracePeriodSeconds: grace})
	Expect(client.IgnoreNotFound(err)).To(Succeed()) // the last one may have done its work
}

// next waits for an importer that is none of those that were killed.
func (k *killer) next(ctx context.Context) (pod corev1.Pod, pid int) {
	GinkgoHelper()
	key := client.ObjectKey{Namespace: k.ns, Name: "importer-" + k.disk}
	Eventually(func(g Gomega) {
		pid, pod = 0, corev1.Pod{}
		g.Expect(suite.World.Client.Get(ctx, key, &pod)).To(Succeed())
		g.Expect(pod.UID).NotTo(Equal(k.pod), "the pod that was deleted")
		for _, p := range processesOf(pod.UID) {
			if p.program() == "slipway" && p.pid != k.pid {
				pid = p.pid
			}
		}
		g.Expect(pid).NotTo(BeZero(), "the process of pod %s, which is %s: %+v", key.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
	}).WithContext(ctx).WithTimeout(suite.BoundImport).WithPolling(100 * time.Millisecond).Should(Succeed())
	return pod, pid
}

// podsIn are the names of a namespace's pods.
func podsIn(ctx context.Context, ns string) ([]string, error) {
	var pods corev1.PodList
	if err := suite.World.Client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	var all []string
	for i := range pods.Items {
		all = append(all, pods.Items[i].Name)
	}
	return all, nil
}

// heldImage serves one image at every path. At some it comes slowly, and one piece of it so slowly that no importer is through
// before they are released, nor gives the server up.
type heldImage struct {
	content []byte
	held    map[string]chan struct{} // closed when it is released
}

func newHeldImage(held ...string) *heldImage {
	image := &heldImage{content: make([]byte, killedSize), held: map[string]chan struct{}{}}
	_, _ = rand.NewChaCha8([32]byte{9}).Read(image.content) // never fails
	for _, path := range held {
		image.held[path] = make(chan struct{})
	}
	return image
}

// release lets the image come whole, and as fast as it can.
func (h *heldImage) release(path string) { close(h.held[path]) }

func (h *heldImage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"v1"`)
	var content io.ReadSeeker = bytes.NewReader(h.content)
	if released, held := h.held[r.URL.Path]; held {
		content = &heldReader{ReadSeeker: content, released: released, gone: r.Context().Done()}
	}
	http.ServeContent(w, r, "disk.raw", time.Time{}, content)
}

// heldReader reads a piece at each tick, and next to nothing from the middle of the image's second half on, but its end, where
// importers look first.
type heldReader struct {
	io.ReadSeeker
	released, gone <-chan struct{}
}

func (h *heldReader) Read(p []byte) (int, error) {
	const piece, trickle, from, end = 32 << 10, 8 << 10, killedSize / 4 * 3, killedSize - 1<<20
	at, err := h.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	pause, most := time.Second*piece/killedRate, piece
	if at >= from && at < end {
		pause, most = 10*time.Second, trickle // sooner than importers take a connection for broken
	}
	select {
	case <-h.gone:
		return 0, context.Canceled
	case <-h.released:
		return h.ReadSeeker.Read(p)
	case <-time.After(pause):
		return h.ReadSeeker.Read(p[:min(len(p), most)])
	}
}
