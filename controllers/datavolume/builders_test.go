package datavolume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containers/image/v5/docker/reference"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/internal/registries"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// input is a case's file: a DataVolume and what the controller knows beside it.
type input struct {
	DataVolume cdiv1.DataVolume        `json:"dataVolume"`
	Class      *storagev1.StorageClass `json:"class,omitempty"`
	Profile    *cdiv1.StorageProfile   `json:"profile,omitempty"`
	Config     cdiv1.CDIConfigStatus   `json:"config"`
	// Insecure and Registries, a registries.conf, say where images are read from.
	Insecure   []string `json:"insecure,omitempty"`
	Registries string   `json:"registries,omitempty"`
	// Proxy is how servers are reached, ProxySecret the Secret for that.
	Proxy       cdiconfig.ImportProxy `json:"proxy"`
	ProxySecret string                `json:"proxySecret,omitempty"`

	// Workload is what the CDI object says of pods; Prepared a volume that has the disk.
	Workload cdiconfig.Workload       `json:"workload"`
	Prepared *corev1.PersistentVolume `json:"prepared,omitempty"`
	// Source is the claim that is cloned, or copied by a pod; Strategy how clones are made. Nothing clones it when it is Driverless.
	Source        *corev1.PersistentVolumeClaim `json:"source,omitempty"`
	Strategy      cdiv1.CDICloneStrategy        `json:"strategy,omitempty"`
	SnapshotClass string                        `json:"snapshotClass,omitempty"`
	Driverless    bool                          `json:"driverless,omitempty"`
	// Snapshot is what is cloned instead of Source, Content what holds it.
	Snapshot *snapshotv1.VolumeSnapshot        `json:"snapshot,omitempty"`
	Content  *snapshotv1.VolumeSnapshotContent `json:"content,omitempty"`
	Affinity *corev1.NodeAffinity              `json:"affinity,omitempty"`
	Binder   bool                              `json:"binder,omitempty"`
	Upload   *uploadInput                      `json:"upload,omitempty"`
}

// golden runs build on every case under testdata/kind and compares with what it gave before.
func golden(t *testing.T, kind string, build func(input) (any, error)) {
	t.Helper()
	cases, err := filepath.Glob(filepath.Join("testdata", kind, "*.in.yaml"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, name := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".in.yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var in input
			if err := yaml.UnmarshalStrict(data, &in); err != nil {
				t.Fatal(err)
			}
			in.DataVolume.UID = "0000-dv"
			out, err := build(in)
			if err != nil {
				out = map[string]string{"error": err.Error()}
			}
			got, err := yaml.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, strings.TrimSuffix(name, ".in.yaml")+".out.yaml", got)
		})
	}
}

func TestClaims(t *testing.T) {
	golden(t, "claim", func(in input) (any, error) {
		input := claimInput{DataVolume: &in.DataVolume, Class: in.Class, Profile: in.Profile, Config: in.Config, Strategy: in.Strategy, SnapshotClass: in.SnapshotClass, Prepared: in.Prepared}
		switch {
		case in.Source != nil:
			input.Source = originOf(in.Source)
			input.Source.driverless = in.Driverless
		case in.Snapshot != nil:
			input.Source = originOfSnapshot(in.Snapshot, in.Content)
		}
		return buildClaim(input)
	})
}

func TestPods(t *testing.T) {
	golden(t, "pod", func(in input) (any, error) {
		claim, err := buildClaim(claimInput{DataVolume: &in.DataVolume})
		if err != nil {
			return nil, err
		}
		var places []registries.Place
		if source := in.DataVolume.Spec.Source; source != nil && source.Registry != nil && source.Registry.URL != nil {
			image, err := reference.ParseNormalizedNamed(strings.TrimPrefix(*source.Registry.URL, schemeDocker))
			if err != nil {
				return nil, err
			}
			if places, err = (registries.Settings{Insecure: in.Insecure, Conf: in.Registries}).Places(image); err != nil {
				return nil, err
			}
		}
		return buildPod(podInput{
			DataVolume: &in.DataVolume, Claim: claim, Image: "registry.local/slipway:test", Token: "token",
			Config: in.Config, Places: places, Affinity: in.Affinity, Binder: in.Binder, Upload: in.Upload, CopyFrom: in.Source,
			Proxy: in.Proxy, ProxySecret: in.ProxySecret, Workload: in.Workload,
		}), nil
	})
}

func TestPodNamesFitAHostName(t *testing.T) {
	long := strings.Repeat("a", 80)
	if got := PodName(long); len(got) > 63 || got == PodName(long+"b") {
		t.Errorf("%q is too long or not unique", got)
	}
	if got := PodName("debian"); got != "importer-debian" {
		t.Errorf("got %q", got)
	}
}

func TestAnUploadServerTellsOfItsProgressElsewhere(t *testing.T) {
	data := input{Upload: &uploadInput{Secret: "secret", Authority: "1"}}
	data.DataVolume.Name = "disk"
	data.DataVolume.Spec.Storage = &cdiv1.StorageSpec{}
	build := func(in *uploadInput) *corev1.Pod {
		return buildPod(podInput{DataVolume: &data.DataVolume, Claim: &corev1.PersistentVolumeClaim{}, Upload: in})
	}
	port := func(pod *corev1.Pod) int32 {
		container := pod.Spec.Containers[0]
		n := slices.IndexFunc(container.Ports, func(port corev1.ContainerPort) bool { return port.Name == progress.Port })
		if n < 0 || !slices.Contains(container.Args, fmt.Sprintf("--progress-address=:%d", container.Ports[n].ContainerPort)) {
			t.Fatalf("ports %v, arguments %v", container.Ports, container.Args)
		}
		return container.Ports[n].ContainerPort
	}
	importing, waiting := port(build(nil)), port(build(data.Upload))
	if importing != transfer.ProgressPort || waiting != upload.ServerProgressPort || waiting == upload.ServerPort {
		t.Errorf("an importer's is %d, an upload server's %d", importing, waiting)
	}
}
