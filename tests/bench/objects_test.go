//go:build e2e

package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// instance is a VMI without a guest OS: its firmware finds nothing to boot.
func instance(namespace, name string) *virtv1.VirtualMachineInstance {
	spec := fixture.VM(namespace, name, fixture.EmptyDisk("root", "16Mi")).Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	return &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
}

func plainPod(namespace, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plain"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: "plain", Image: image, Command: []string{"sleep", "600"}}},
		},
	}
}

var requests = regexp.MustCompile(`(?m)^apiserver_request_total\{([^}]*)\} (\S+)$`)

// writes returns how many writes the API server has taken so far, of one resource or of all.
func writes(ctx context.Context, c *env.Cluster, resource string) (float64, error) {
	data, err := c.Kube.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	total := 0.0
	for _, match := range requests.FindAllSubmatch(data, -1) {
		labels := string(match[1])
		if resource != "" && !strings.Contains(labels, `resource="`+resource+`"`) {
			continue
		}
		for _, verb := range []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"} {
			if strings.Contains(labels, `verb="`+verb+`"`) {
				value, err := strconv.ParseFloat(string(bytes.TrimSpace(match[2])), 64)
				if err != nil {
					return 0, fmt.Errorf("reading the API server's metrics: %w", err)
				}
				total += value
			}
		}
	}
	return total, nil
}

// makeDisks makes a disk of 4 GiB with 1.5 GiB of data, half of it compressible, in each format.
func makeDisks(b *testing.B, dir string) {
	b.Helper()
	raw := filepath.Join(dir, "disk.raw")
	file, err := os.Create(raw)
	must(b, err)
	source := rand.NewChaCha8([32]byte{1})
	block := make([]byte, 1<<20)
	for i := range 1536 {
		_, _ = source.Read(block[:len(block)/2]) // never fails
		for j := len(block) / 2; j < len(block); j++ {
			block[j] = byte(i + j/4096)
		}
		_, err := file.WriteAt(block, int64(i)*8/3<<20)
		must(b, err)
	}
	must(b, file.Truncate(4<<30))
	must(b, file.Close())
	for _, command := range [][]string{
		{"qemu-img", "convert", "-O", "qcow2", raw, filepath.Join(dir, "disk.qcow2")},
		{"qemu-img", "convert", "-c", "-m", "2", "-W", "-O", "qcow2", raw, filepath.Join(dir, "disk.compressed.qcow2")},
		{"gzip", "-1", "-k", raw}, {"xz", "-0", "-T2", "-k", raw}, {"zstd", "-q", "-1", "-T2", "-k", raw},
	} {
		out, err := exec.CommandContext(b.Context(), command[0], command[1:]...).CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %v: %s", command, err, out)
		}
	}
}
