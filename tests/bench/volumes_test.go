//go:build e2e

package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	cdiupload "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/bench/goal"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// What the volumes of the benchmark hold.
const (
	// volumeSize is the size of the disk that is cloned and snapshotted, volumeData how many of its bytes are data.
	volumeSize, volumeData = 4 << 30, 512 << 20
	// importsAtOnce import a disk at the same time, of smallData bytes each, then of largeData.
	importsAtOnce, smallData, largeData = 20, 256 << 20, 1 << 30
	// uploadData is the size of an upload in bytes.
	uploadData = 1 << 30
	// wire is the speed of a network of 1 Gbit/s, in bytes a second.
	wire = 125e6
	// turns is how often a machine, a clone, a snapshot and an upload are measured; the median counts.
	turns = 5
)

// volumes is what the benchmark's parts share.
type volumes struct {
	b      *testing.B
	c      *env.Cluster
	ns     string
	dir    string
	server string // serves dir
}

// BenchmarkVolumes measures what the design promises of volumes on the local cluster's pool: clones
// and snapshots of a disk of 4 GiB, 20 imports at once, and an upload. The pool and the machine's disk
// need 25 GiB of room for it.
func BenchmarkVolumes(b *testing.B) {
	c, ns := open(b)
	v := &volumes{b: b, c: c, ns: ns, dir: b.TempDir()}
	serving, stop := context.WithCancel(context.Background())
	b.Cleanup(stop)
	var err error
	v.server, err = c.Serve(serving, http.FileServer(http.Dir(v.dir)))
	must(b, err)
	for b.Loop() {
		v.cloneAndSnapshot()
		v.importMany(smallData, goal.None) // most of it is the start of 20 pods, whatever they do
		v.importMany(largeData, "<= 1.3")
		v.upload()
	}
}

// disk makes a sparse disk with data, which does not pack, in the middle of it.
func (v *volumes) disk(name string, size, data int64) string {
	v.b.Helper()
	path := filepath.Join(v.dir, name)
	file, err := os.Create(path)
	must(v.b, err)
	defer file.Close()
	must(v.b, file.Truncate(size))
	_, err = file.Seek((size-data)/2, io.SeekStart)
	must(v.b, err)
	_, err = io.CopyN(file, rand.NewChaCha8([32]byte{1}), data)
	must(v.b, err)
	return path
}

// until waits for the DataVolume's phase and returns the seconds from begun.
func (v *volumes) until(dv *cdiv1.DataVolume, phase cdiv1.DataVolumePhase, begun time.Time) (float64, error) {
	err := v.c.Await(v.b.Context(), io.Discard, dv, bound, func(obj client.Object) (string, bool, error) {
		found := obj.(*cdiv1.DataVolume).Status.Phase
		return string(found), found == phase, nil
	})
	return time.Since(begun).Seconds(), err
}

// make creates the DataVolume and returns the seconds until it is in the phase.
func (v *volumes) make(dv *cdiv1.DataVolume, phase cdiv1.DataVolumePhase) float64 {
	v.b.Helper()
	begun := time.Now()
	must(v.b, v.c.Client.Create(v.b.Context(), dv))
	took, err := v.until(dv, phase, begun)
	must(v.b, err)
	return took
}

func (v *volumes) remove(obj client.Object) {
	v.b.Helper()
	must(v.b, v.c.Client.Delete(v.b.Context(), obj))
	must(v.b, v.c.Gone(v.b.Context(), io.Discard, obj, bound))
}

func (v *volumes) cloneAndSnapshot() {
	v.b.Helper()
	v.disk("golden.raw", volumeSize, volumeData)
	golden := fixture.DataVolume(v.ns, "golden", "4Gi", fixture.HTTP(v.server+"/golden.raw"))
	v.make(golden, cdiv1.Succeeded)
	var clones, snapshots []float64
	for n := range turns {
		clone := fixture.DataVolume(v.ns, fmt.Sprintf("clone-%d", n), "4Gi", fixture.CloneOf(v.ns, "golden"))
		clones = append(clones, v.make(clone, cdiv1.Succeeded))
		snapshot := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: v.ns, Name: fmt.Sprintf("snapshot-%d", n)},
			Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("golden")}},
		}
		begun := time.Now()
		must(v.b, v.c.Client.Create(v.b.Context(), snapshot))
		must(v.b, v.c.Await(v.b.Context(), io.Discard, snapshot, bound, func(obj client.Object) (string, bool, error) {
			status := obj.(*snapshotv1.VolumeSnapshot).Status
			ready := status != nil && status.ReadyToUse != nil && *status.ReadyToUse
			return fmt.Sprintf("ready: %t", ready), ready, nil
		}))
		snapshots = append(snapshots, time.Since(begun).Seconds())
		v.remove(clone)
		v.remove(snapshot)
	}
	v.remove(golden)
	goal.Report(v.b, "clone of a 4 GiB disk on "+v.c.Local.PoolType+", create to Succeeded, median", median(clones), "s", "<= 1")
	goal.Report(v.b, "snapshot of a 4 GiB disk on "+v.c.Local.PoolType+", create to ready, median", median(snapshots), "s", "<= 1")
}

// importMany compares imports at once with what each cannot be faster than, one after another: the
// download of its disk, or a sparse write of it with fsync, whichever takes longer. How many of them the
// scheduler lets run at a time follows from the processor that each asks for, which is said beside.
func (v *volumes) importMany(size int64, limit string) {
	v.b.Helper()
	from := v.disk("many.raw", size, size)
	defer os.Remove(from)
	var downloads, writes []float64
	for range turns {
		downloads = append(downloads, v.download(v.server+"/many.raw"))
		writes = append(writes, v.copyToPool(from))
	}
	least := max(median(downloads), median(writes))
	begun := time.Now()
	var group errgroup.Group
	made, failures := make([]*cdiv1.DataVolume, importsAtOnce), make([]error, importsAtOnce)
	for n := range importsAtOnce {
		made[n] = fixture.DataVolume(v.ns, fmt.Sprintf("many-%d", n), fmt.Sprint(size), fixture.HTTP(v.server+"/many.raw"))
		must(v.b, v.c.Client.Create(v.b.Context(), made[n]))
		group.Go(func() error {
			_, failures[n] = v.until(made[n], cdiv1.Succeeded, begun)
			return nil
		})
	}
	asked := v.importerCPU(made)
	must(v.b, group.Wait())
	total := time.Since(begun).Seconds()
	succeeded, again := 0, int32(0)
	for n, dv := range made {
		if failures[n] != nil {
			fmt.Println("   ", failures[n])
		} else {
			succeeded++
		}
		must(v.b, v.c.Client.Get(v.b.Context(), client.ObjectKeyFromObject(dv), dv))
		again += dv.Status.RestartCount
		v.remove(dv)
	}
	what := fmt.Sprintf("%d imports of %d MiB at once", importsAtOnce, size>>20)
	goal.Report(v.b, what+": processor that each asks for", float64(asked), "m", goal.None)
	goal.Report(v.b, what+": succeeded", float64(succeeded), "imports", fmt.Sprint(importsAtOnce))
	goal.Report(v.b, what+": attempts that failed", float64(again), "attempts", "0")
	goal.Report(v.b, what+": the slowest plain step of one, median", least, "s", goal.None)
	goal.Report(v.b, what+": create to the last that Succeeded", total, "s", goal.None)
	goal.Report(v.b, what+": to their slowest plain steps one after another", total/(least*importsAtOnce), "x", limit)
}

// importerCPU is the request of the importer pod of the last of these, in thousandths of a processor.
func (v *volumes) importerCPU(made []*cdiv1.DataVolume) int64 {
	v.b.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v.ns, Name: "importer-" + made[len(made)-1].Name}}
	asked := int64(0)
	must(v.b, v.c.Await(v.b.Context(), io.Discard, pod, bound, func(obj client.Object) (string, bool, error) {
		for _, container := range obj.(*corev1.Pod).Spec.Containers {
			asked += container.Resources.Requests.Cpu().MilliValue()
		}
		return "there", true, nil
	}))
	return asked
}

// download reads an address to nowhere and returns the seconds.
func (v *volumes) download(url string) float64 {
	v.b.Helper()
	request, err := http.NewRequestWithContext(v.b.Context(), http.MethodGet, url, nil)
	must(v.b, err)
	begun := time.Now()
	response, err := http.DefaultClient.Do(request)
	must(v.b, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		v.b.Fatalf("%s: %s", url, response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	must(v.b, err)
	return time.Since(begun).Seconds()
}

// copyToPool writes a file to the pool with fsync and returns the seconds.
func (v *volumes) copyToPool(from string) float64 {
	v.b.Helper()
	source, err := os.Open(from)
	must(v.b, err)
	defer source.Close()
	begun := time.Now()
	must(v.b, writeToPool(v.c, source))
	return time.Since(begun).Seconds()
}

// writeToPool writes what it reads into a file of the pool, makes it safe, and removes it.
func writeToPool(c *env.Cluster, from io.Reader) error {
	to, err := os.CreateTemp(c.Local.PoolPath, "bench-")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name())
	defer to.Close()
	// Without what the file could do itself: as any program copies what it got over a connection.
	if _, err := io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from}); err != nil {
		return err
	}
	return to.Sync()
}

// upload compares an upload by cdi-uploadproxy with a PUT, by HTTPS as well, to a server that writes to the same pool:
// from this machine itself, where the processors are what limits both, and by a network of 1 Gbit/s.
func (v *volumes) upload() {
	v.b.Helper()
	image := v.disk("upload.raw", uploadData, uploadData)
	plain := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := writeToPool(v.c, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	defer plain.Close()
	v.uploadBy("", rate.Inf, image, plain.URL)
	v.uploadBy(" by 1 Gbit/s", wire, image, plain.URL)
}

// uploadBy uploads the image, and puts it to the address plain, at most so many bytes a second.
func (v *volumes) uploadBy(how string, speed rate.Limit, image, plain string) {
	v.b.Helper()
	proxy := v.uploadProxy()
	var ours, theirs []float64
	for n := range turns {
		theirs = append(theirs, v.send(http.MethodPut, plain, "", image, speed))
		dv := fixture.DataVolume(v.ns, fmt.Sprintf("upload-%d", n), fmt.Sprint(uploadData))
		dv.Spec.Source = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
		v.make(dv, cdiv1.UploadReady)
		token := &cdiupload.UploadTokenRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: v.ns, Name: "bench"}, Spec: cdiupload.UploadTokenRequestSpec{PvcName: dv.Name},
		}
		must(v.b, v.c.Client.Create(v.b.Context(), token))
		ours = append(ours, v.send(http.MethodPost, proxy+"/v1beta1/upload", token.Status.Token, image, speed))
		v.remove(dv)
	}
	goal.Report(v.b, "plain PUT of 1 GiB by HTTPS into the pool"+how+", median", uploadData/median(theirs)/(1<<20), "MiB/s", "-")
	goal.Report(v.b, "upload of 1 GiB by cdi-uploadproxy"+how+", median", uploadData/median(ours)/(1<<20), "MiB/s", "-")
	goal.Report(v.b, "speed of an upload"+how+" to that of a plain PUT", median(theirs)/median(ours), "x", ">= 0.9")
}

// uploadProxy is the URL of a pod of cdi-uploadproxy.
func (v *volumes) uploadProxy() string {
	v.b.Helper()
	var pods corev1.PodList
	must(v.b, v.c.Client.List(v.b.Context(), &pods, client.InNamespace(names.InstallNamespace), client.MatchingLabels{"cdi.kubevirt.io": "cdi-uploadproxy"}))
	for _, pod := range pods.Items {
		if pod.Status.PodIP != "" && pod.DeletionTimestamp == nil {
			return "https://" + pod.Status.PodIP + ":8443"
		}
	}
	v.b.Fatalf("no pod of cdi-uploadproxy has an address: %d pods", len(pods.Items))
	return ""
}

// paced reads no faster than its pace.
type paced struct {
	io.Reader

	pace *rate.Limiter
}

func (p paced) Read(to []byte) (int, error) {
	n, err := p.Reader.Read(to)
	if waited := p.pace.WaitN(context.Background(), n); waited != nil {
		return n, waited
	}
	return n, err
}

// send sends the image, at most so many bytes a second, and returns the seconds until the answer.
func (v *volumes) send(method, url, token, image string, speed rate.Limit) float64 {
	v.b.Helper()
	file, err := os.Open(image)
	must(v.b, err)
	defer file.Close()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is this machine's own cluster
	defer transport.CloseIdleConnections()
	var body io.Reader = file
	if speed != rate.Inf {
		body = paced{file, rate.NewLimiter(speed, 1<<20)}
	}
	request, err := http.NewRequestWithContext(v.b.Context(), method, url, body)
	must(v.b, err)
	request.ContentLength = uploadData
	request.Header.Set("Authorization", "Bearer "+token)
	begun := time.Now()
	response, err := (&http.Client{Transport: transport}).Do(request)
	must(v.b, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	must(v.b, err)
	if response.StatusCode != http.StatusOK {
		v.b.Fatalf("%s %s: %s: %s", method, url, response.Status, answer)
	}
	return time.Since(begun).Seconds()
}
