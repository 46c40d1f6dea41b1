//go:build e2e

package scale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/admission/virtualmachineinstance"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// nodes is how many simulated nodes there are.
const nodes = 20

const (
	installed = "slipway"
	namespace = "machines"
)

// world is an API server with virt-controller, and what plays the rest.
type world struct {
	client     client.WithWatch
	controller *exec.Cmd
	metricsURL string
	said       *bytes.Buffer
	stop       func()

	running, instanceWrites atomic.Int64
	progress                chan struct{}
	broken                  chan error
}

// start starts everything.
func start(b *testing.B) *world {
	b.Helper()
	ctrllog.SetLogger(klog.Background())
	root := "../../.."
	assets := output(b, root, "run", "-C", "hack/cluster", ".", "build")
	server := &envtest.Environment{
		Scheme: scheme.New(), BinaryAssetsDirectory: assets, ErrorIfCRDPathMissing: true,
		CRDDirectoryPaths: []string{filepath.Join(root, "controllers/hyperconverged/components/crds")},
	}
	// As in a cluster: the setting of servers that live for one test has it collect garbage without end over so much that it keeps.
	b.Setenv("GOGC", "100")
	b.Setenv("GOMEMLIMIT", "off")
	config, err := server.Start()
	b.Cleanup(func() { _ = server.Stop() })
	must(b, err)
	config.QPS, config.Burst = 1000, 2000
	w := &world{said: &bytes.Buffer{}, progress: make(chan struct{}, 1), broken: make(chan error, 1)}
	w.client, err = client.NewWithWatch(config, client.Options{Scheme: server.Scheme})
	must(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	w.stop = cancel
	w.furnish(b)
	w.play(ctx, b)
	user, err := server.AddUser(envtest.User{Name: "virt-controller", Groups: []string{"system:masters"}}, nil)
	must(b, err)
	kubeconfig, err := user.KubeConfig()
	must(b, err)
	file := filepath.Join(b.TempDir(), "kubeconfig")
	must(b, os.WriteFile(file, kubeconfig, 0o600))
	w.run(ctx, b, root, file)
	return w
}

// furnish makes the namespaces, the nodes and the settings.
func (w *world) furnish(b *testing.B) {
	b.Helper()
	for _, name := range []string{installed, namespace} {
		must(b, w.client.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	settings := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: names.KubeVirtName}}
	settings.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{UseEmulation: true}
	must(b, w.client.Create(b.Context(), settings))
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: nodeName(i), Labels: map[string]string{virtv1.NodeSchedulable: "true"},
			// Of a time to come: nobody renews it.
			Annotations: map[string]string{virtv1.VirtHandlerHeartbeat: strconv.Quote(time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339))},
		}}
		must(b, w.client.Create(b.Context(), node))
		ready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		must(b, w.client.Status().Patch(b.Context(), node, client.RawPatch(types.StrategicMergePatchType, ready)))
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i%nodes) }

// instance is a machine as virt-api would have completed it.
func instance(number int) *virtv1.VirtualMachineInstance {
	name := fmt.Sprintf("vmi-%d", number)
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	vmi.Spec = fixture.VM(namespace, name, fixture.EmptyDisk("root", "16Mi")).Spec.Template.Spec
	virtualmachineinstance.Default(vmi, defaults.Cluster{}, time.Now())
	return vmi
}

// run builds and starts virt-controller as a process of its own, so that its memory is its own.
func (w *world) run(ctx context.Context, b *testing.B, root, kubeconfig string) {
	b.Helper()
	program := filepath.Join(b.TempDir(), "slipway")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/slipway")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building slipway: %v: %s", err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	address := listener.Addr().String()
	must(b, listener.Close())
	w.metricsURL = "https://" + address + "/metrics"
	w.controller = exec.CommandContext(ctx, program, "controller", "--launcher-image", "launcher", "--importer-image", "slipway",
		"--guestfs-image", "guestfs", "--namespace", installed, "--health-address", "0", "--metrics-address", address)
	w.controller.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "GOGC=50", "GOMEMLIMIT=off") // as its Deployment has it, whatever this program was given
	w.controller.Stderr = w.said
	must(b, w.controller.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := w.controller.Wait(); err != nil && ctx.Err() == nil {
			w.broken <- fmt.Errorf("virt-controller ended: %w", err)
		}
	}()
	stop := w.stop
	w.stop = func() { stop(); <-ended }
	b.Cleanup(w.stop)
}

// tail is the end of what virt-controller said.
func (w *world) tail() string {
	text := w.said.String() // it may write meanwhile; this is for people
	return text[max(0, len(text)-4000):]
}

// output runs go and returns the last word that it printed.
func output(b *testing.B, dir string, args ...string) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	lines := strings.Fields(string(out))
	if err == nil && len(lines) == 0 {
		err = errors.New("nothing was printed")
	}
	if err != nil {
		b.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return lines[len(lines)-1]
}
