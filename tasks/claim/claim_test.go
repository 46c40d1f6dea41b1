package claim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/tests/fixture/need"
)

func TestFindTheDisk(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "disk.img")
	none := filepath.Join(dir, "none")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ device, file, want, err string }{
		"a file":                       {none, file, file, ""},
		"a device":                     {"/dev/null", none, "/dev/null", ""},
		"no device but a plain file":   {file, file, file, ""},
		"neither":                      {none, none, "", "pvc: claim x: its disk is not there"},
		"a folder in the file's place": {none, dir, "", "is no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := find(c.device, c.file, "pvc: claim x", true)
			if c.err == "" && (err != nil || got != c.want) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
			if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

// A claim that came from elsewhere may belong to root: the error names what mends it.
func TestADiskOfRootsSaysWhatToDo(t *testing.T) {
	need.Root(t, "be another user")
	dir := t.TempDir()
	file := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	asUser(t, 107, func() { _, err = find("/dev/none", file, "pvc: claim x", true) })
	if err == nil || !strings.Contains(err.Error(), "podTemplate.securityContext.fsGroup: 107") {
		t.Errorf("error %v does not name the fsGroup", err)
	}
	if chmodErr := os.Chmod(dir, 0o700); chmodErr != nil {
		t.Fatal(chmodErr)
	}
	asUser(t, 107, func() { _, err = find("/dev/none", file, "pvc: claim x", true) })
	if err == nil || !strings.Contains(err.Error(), "podTemplate.securityContext.fsGroup: 107") {
		t.Errorf("error %v does not name the fsGroup", err)
	}
}

func TestADiskThatQEMUHasOpenIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Unlocked(path); err != nil {
		t.Errorf("a disk that nobody uses: %v", err)
	}
	qemu, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer qemu.Close()
	// What QEMU does for a disk that it writes to: a shared lock on the byte of that permission.
	lock := unix.Flock_t{Type: unix.F_RDLCK, Start: lockUsed + 1, Len: 1}
	if err := unix.FcntlFlock(qemu.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	if err := Unlocked(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a locked disk: %v", err)
	}
}

func TestWhoUsesAClaim(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-a", Labels: map[string]string{"vm.kubevirt.io/name": "short"}},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
		}}}},
	}
	if !uses(pod, "disk") || uses(pod, "other") {
		t.Error("the claims of a pod are not told apart")
	}
	if got := vmOf(pod); got != "VirtualMachine short" {
		t.Error(got)
	}
	pod.Annotations = map[string]string{"kubevirt.io/domain": "whole-name"}
	if got := vmOf(pod); got != "VirtualMachine whole-name" {
		t.Error(got)
	}
	for phase, want := range map[corev1.PodPhase]bool{corev1.PodRunning: false, corev1.PodPending: false, corev1.PodSucceeded: true, corev1.PodFailed: true} {
		pod.Status.Phase = phase
		if ended(pod) != want {
			t.Errorf("a pod in phase %s: ended is %t", phase, !want)
		}
	}
}
