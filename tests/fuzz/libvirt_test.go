//go:build integration

package fuzz

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/tests/fixture/need"
	"github.com/slipway-vm/slipway/tests/fixture/random"
)

// machines is how many a run of the tests tries; a fuzzer tries as many as it has time for.
const machines = 500

// startTimeout is for the launcher's image to be unpacked and libvirtd to answer.
const startTimeout = 2 * time.Minute

// TestLibvirtTakesWhatIsAdmitted shows of machines that are always the same, whatever is
// admitted of them, that libvirt of the launcher's image takes their domain and finds
// arguments for QEMU.
func TestLibvirtTakesWhatIsAdmitted(t *testing.T) {
	gate, err := theGate()
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t)
	began, defined := time.Now(), 0
	for seed := range uint64(machines) {
		object := machine(gate.definition.schema, random.Seeded(seed, size))
		vmi, err := gate.pass(t.Context(), object)
		if err != nil {
			t.Errorf("%v\n%s", err, pretty(object))
		}
		if vmi == nil || err != nil {
			continue
		}
		built, err := domain.Build(input(vmi, false, int(seed)))
		if err == nil {
			err = define(conn, built)
		}
		if err != nil {
			t.Errorf("machine %d is admitted, but libvirt does not take its domain: %v\n%s", seed, err, pretty(object))
		}
		defined++
	}
	t.Logf("defined %d of %d machines in %s", defined, machines, time.Since(began).Round(time.Second))
}

// FuzzDefine is the same for as many machines as there is time for: make fuzz FUZZTIME=1h.
func FuzzDefine(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(random.Seeded(seed, size))
	}
	gate, err := theGate()
	if err != nil {
		f.Fatal(err)
	}
	conn := connect(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		object := machine(gate.definition.schema, data)
		vmi, err := gate.pass(t.Context(), object)
		if err != nil {
			t.Fatalf("%v\n%s", err, pretty(object))
		}
		if vmi == nil {
			return
		}
		built, err := domain.Build(input(vmi, false, len(data)))
		if err == nil {
			err = define(conn, built)
		}
		if err != nil {
			t.Fatalf("admitted, but libvirt does not take its domain: %v\n%s", err, pretty(object))
		}
	})
}

// define defines a domain as the launcher does, has libvirt write QEMU's arguments, and removes it.
func define(conn *libvirt.Connect, spec *libvirtxml.Domain) error {
	document, err := spec.Marshal()
	if err != nil {
		return fmt.Errorf("writing the domain's XML: %w", err)
	}
	defined, err := conn.DomainDefineXMLFlags(document, libvirt.DOMAIN_DEFINE_VALIDATE)
	if err != nil {
		return fmt.Errorf("defining: %w\n%s", err, document)
	}
	argsErr := arguments(conn, spec)
	err = defined.UndefineFlags(libvirt.DOMAIN_UNDEFINE_NVRAM)
	return errors.Join(argsErr, err, defined.Free())
}

// arguments has libvirt write QEMU's arguments, which finds more than reading the XML does. It
// would make the interfaces' taps for that; they are left out.
func arguments(conn *libvirt.Connect, spec *libvirtxml.Domain) error {
	without := *spec
	devices := *spec.Devices
	devices.Interfaces, without.Devices = nil, &devices
	document, err := without.Marshal()
	if err != nil {
		return fmt.Errorf("writing the domain's XML: %w", err)
	}
	if _, err := conn.DomainXMLToNative("qemu-argv", document, 0); err != nil {
		return fmt.Errorf("writing QEMU's arguments: %w\n%s", err, document)
	}
	return nil
}

// connect starts the launcher as in its pod, whose libvirtd is then asked: as long as tb runs.
func connect(tb testing.TB) *libvirt.Connect {
	tb.Helper()
	need.Root(tb, "make namespaces like a pod's")
	root := launcherRoot(tb)
	dir := folders(tb)
	script, err := filepath.Abs("../../runtime/launcher/testdata/pod.sh")
	if err != nil {
		tb.Fatal(err)
	}
	run(tb, "-p", "--fork", "--kill-child", "unshare", "-m", "-p", "-n", "-i", "--fork", "bash", script, root, dir,
		"/usr/bin/virt-launcher", "--name", "x", "--namespace", "prod", "--uid", "uid")
	uri := "qemu+unix:///session?socket=" + filepath.Join(dir, "libvirt", "libvirt-sock")
	deadline := time.Now().Add(startTimeout)
	for {
		conn, err := libvirt.NewConnect(uri)
		if err == nil {
			tb.Cleanup(func() { _, _ = conn.Close() })
			return conn
		}
		if time.Now().After(deadline) {
			tb.Fatalf("libvirtd of the launcher does not answer: %v", err)
		}
		time.Sleep(100 * time.Millisecond) // nothing tells when somebody listens on a socket
	}
}

// folders makes a pod's empty folders, which are uid 107's.
func folders(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "fuzz-") // short: a socket's path has 108 bytes
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	err = os.Chmod(dir, 0o755)
	for _, name := range []string{"libvirt", "private", "sockets"} {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.Mkdir(path, 0o770), os.Chown(path, 107, 107))
	}
	last := filepath.Join(dir, "termination-log")
	if err := errors.Join(err, os.WriteFile(last, nil, 0o666), os.Chmod(last, 0o666)); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// run starts unshare, which ends with all that it started when tb does, or this process: the
// kernel looks at the thread that started it, which therefore waits.
func run(tb testing.TB, args ...string) {
	tb.Helper()
	cmd := exec.Command("unshare", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getenv("LAUNCHER_LOG") != "" {
		cmd.Stderr = os.Stderr
	}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
}

// launcherRoot unpacks the launcher's image, or finds it unpacked.
var builtRoot = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "run", "./hack/images", "unpack", "slipway-launcher")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go run ./hack/images unpack slipway-launcher: %w", err)
	}
	lines := strings.Fields(string(out))
	if len(lines) == 0 {
		return "", errors.New("go run ./hack/images unpack slipway-launcher printed no path")
	}
	return lines[len(lines)-1], nil
})

func launcherRoot(tb testing.TB) string {
	tb.Helper()
	root, err := builtRoot()
	if err != nil {
		tb.Fatalf("building the launcher's image: %v", err)
	}
	return root
}
