package disks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/qcow2"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// pod is a folder tree like a launcher pod's.
func pod(t *testing.T) Paths {
	t.Helper()
	dir := t.TempDir()
	return Paths{
		Claims: filepath.Join(dir, "claims"), Blocks: filepath.Join(dir, "dev"),
		Secrets: filepath.Join(dir, "secret"), Scratch: filepath.Join(dir, "private", "disks"),
	}
}

func write(t *testing.T, path string, size int) *os.File {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func vmi(sources map[string]v1.VolumeSource) *v1.VirtualMachineInstance {
	out := &v1.VirtualMachineInstance{}
	out.Namespace, out.Name = "default", "web"
	for name, source := range sources {
		out.Spec.Volumes = append(out.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		out.Spec.Domain.Devices.Disks = append(out.Spec.Domain.Devices.Disks, v1.Disk{Name: name})
	}
	return out
}

func dataVolume() v1.VolumeSource {
	return v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "d"}}
}

func TestPrepareAllKinds(t *testing.T) {
	paths := pod(t)
	image := write(t, filepath.Join(t.TempDir(), "disk.img"), 5000)
	write(t, filepath.Join(paths.Claims, "claim", "disk.img"), 4096)
	if err := os.MkdirAll(filepath.Join(paths.Claims, "fresh", "lost+found"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(paths.Secrets, "answers", "Autounattend.xml"), 10)
	write(t, filepath.Join(paths.Secrets, "config", "key"), 10)
	write(t, filepath.Join(paths.Claims, "golden", "disk.img"), 8192)
	write(t, filepath.Join(paths.Claims, "node", "vm.img"), 4096)
	request := Request{
		VMI: vmi(map[string]v1.VolumeSource{
			"root":    {ContainerDisk: &v1.ContainerDiskSource{Image: "x"}},
			"claim":   dataVolume(),
			"fresh":   dataVolume(),
			"seed":    {CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config"}},
			"empty":   {EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("1Gi")}},
			"config":  {Secret: &v1.SecretVolumeSource{SecretName: "s"}},
			"drive":   {CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserData: "#cloud-config"}},
			"golden":  {Ephemeral: &v1.EphemeralVolumeSource{}},
			"node":    {HostDisk: &v1.HostDisk{Path: "/data/vm.img"}},
			"answers": {Sysprep: &v1.SysprepSource{ConfigMap: &corev1.LocalObjectReference{Name: "windows"}}},
		}),
		ContainerDisks: map[string]*os.File{"root": image},
		ClaimSizes:     map[string]int64{"fresh": 3<<20 + 5},
	}
	request.VMI.Spec.Volumes = append(request.VMI.Spec.Volumes, v1.Volume{Name: "unattached"})
	for range 2 { // a second attempt finds what the first left
		got, err := Prepare(paths, request)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]struct {
			size      int64
			format    domain.Format
			ephemeral bool
		}{
			"root": {5120, domain.FormatQCOW2, true}, "claim": {4096, domain.FormatRaw, false}, "fresh": {3 << 20, domain.FormatRaw, false},
			"seed": {got["seed"].Size, domain.FormatRaw, true}, "empty": {1 << 30, domain.FormatQCOW2, true},
			"answers": {got["answers"].Size, domain.FormatRaw, true}, "config": {got["config"].Size, domain.FormatRaw, true},
			"drive": {got["drive"].Size, domain.FormatRaw, true}, "golden": {8192, domain.FormatQCOW2, true},
			"node": {4096, domain.FormatRaw, false},
		}
		if len(got) != len(want) {
			t.Errorf("%d disks, want %d", len(got), len(want))
		}
		for name, w := range want {
			g := got[name]
			if g.Size != w.size || g.Format != w.format || g.Ephemeral != w.ephemeral {
				t.Errorf("disk %s: %+v, want %+v", name, g, w)
			}
		}
		if base := got["golden"].Backing; base == nil || base.Path != filepath.Join(paths.Claims, "golden", "disk.img") || base.Format != domain.FormatRaw {
			t.Errorf("the overlay is on %+v", base)
		}
		backing := got["root"].Backing
		if data, err := os.ReadFile(backing.Path); err != nil || len(data) != 5000 || backing.Format != domain.FormatRaw {
			t.Errorf("backing image %+v: %d bytes, %v", backing, len(data), err)
		}
	}
}

func TestABackingImageOfQCOW2IsNamedSo(t *testing.T) {
	paths := pod(t)
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := qcow2.Create(path, 2<<30, nil); err != nil {
		t.Fatal(err)
	}
	image, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := os.MkdirAll(paths.Scratch, 0o755); err != nil {
		t.Fatal(err)
	}
	disk, err := containerDisk(paths, "root", image)
	if err != nil || disk.Size != 2<<30 || disk.Backing.Format != domain.FormatQCOW2 {
		t.Errorf("%+v, %v", disk, err)
	}
}

func TestPrepareSaysWhatIsWrong(t *testing.T) {
	cases := map[string]struct {
		source v1.VolumeSource
		set    func(t *testing.T, paths Paths)
		sizes  map[string]int64
		want   string
	}{
		"no image came":              {source: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}, want: "virt-handler sent no image"},
		"a source of later versions": {source: v1.VolumeSource{ContainerPath: &v1.ContainerPathVolumeSource{}}, want: "not supported yet"},
		"other files on the claim": {
			source: dataVolume(), want: "holds no disk.img but other files (notes.txt)",
			set: func(t *testing.T, paths Paths) {
				t.Helper()
				write(t, filepath.Join(paths.Claims, "v", "notes.txt"), 1)
			},
		},
		"a disk of no bytes": {
			source: dataVolume(), want: "is empty; delete it",
			set: func(t *testing.T, paths Paths) { t.Helper(); write(t, filepath.Join(paths.Claims, "v", "disk.img"), 0) },
		},
		"a symbolic link in place of the disk": {
			source: dataVolume(), want: "no regular file",
			set: func(t *testing.T, paths Paths) {
				t.Helper()
				write(t, filepath.Join(paths.Claims, "v", ".keep"), 0)
				if err := os.Symlink("/etc/shadow", filepath.Join(paths.Claims, "v", "disk.img")); err != nil {
					t.Fatal(err)
				}
			},
		},
		"an empty claim of unknown size": {
			source: dataVolume(), want: "capacity is not known",
			set: empty,
		},
		"an empty claim without its space": {
			source: dataVolume(), want: "use a larger claim", sizes: map[string]int64{"v": 1 << 60},
			set: empty,
		},
		"an overlay on an empty claim": {
			source: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, want: "it is only read; import a disk into it first",
			set: empty,
		},
		"a ConfigMap that is not mounted": {source: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, want: "opening what is mounted"},
		"a claim that is not mounted":     {source: dataVolume(), want: "reading the claim"},
		"a Secret that is not mounted": {
			source: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserDataBase64: "?"}}, want: "user data: decoding base64",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			paths := pod(t)
			if c.set != nil {
				c.set(t, paths)
			}
			_, err := Prepare(paths, Request{VMI: vmi(map[string]v1.VolumeSource{"v": c.source}), ClaimSizes: c.sizes})
			if err == nil || !strings.Contains(err.Error(), "preparing volume v: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func empty(t *testing.T, paths Paths) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(paths.Claims, "v"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestADiscWithoutAnAnswerFileNamesItsSource(t *testing.T) {
	paths := pod(t)
	write(t, filepath.Join(paths.Secrets, "answers", "other.xml"), 10)
	secret := &v1.SysprepSource{Secret: &corev1.LocalObjectReference{Name: "windows"}}
	_, err := Prepare(paths, Request{VMI: vmi(map[string]v1.VolumeSource{"answers": {Sysprep: secret}})})
	if err == nil || !strings.Contains(err.Error(), "preparing volume answers: Secret windows: no key autounattend.xml") {
		t.Errorf("got %v", err)
	}
}

// A read-only claim is mounted so: root writes to any file, but to none of these.
func TestAReadOnlyClaimIsNotWrittenTo(t *testing.T) {
	need.Root(t, "mount")
	paths := pod(t)
	dir := filepath.Join(paths.Claims, "v")
	write(t, filepath.Join(dir, "disk.img"), 512)
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}
	if _, err := Prepare(paths, Request{VMI: vmi(map[string]v1.VolumeSource{"v": source})}); err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("a disk that cannot be written: %v", err)
	}
	source.PersistentVolumeClaim.ReadOnly = true
	if got, err := Prepare(paths, Request{VMI: vmi(map[string]v1.VolumeSource{"v": source})}); err != nil || got["v"].Size != 512 {
		t.Errorf("%+v, %v", got, err)
	}
}
