package imageupload

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

func run(t *testing.T, line string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "virtctl", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(NewCommand(standin.Start(t)))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(append([]string{"image-upload"}, strings.Fields(line)...))
	err := root.Execute()
	return out.String(), err
}

func TestWhatCannotBeIsToldBeforeAnythingIsDone(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"dv":                     "accepts 2 arg",
		"vm disk --image-path=x": "invalid resource type vm",
		"dv disk":                "--image-path is missing",
		"dv disk --archive-path=x --image-path=x":                        "exclude each other",
		"pvc disk --archive-path=x --volume-mode=block":                  "In archive upload the volume mode should always be filesystem",
		"pvc disk --archive-path=x --block-volume":                       "In archive upload the volume mode should always be filesystem",
		"dv disk --image-path=x --volume-mode=raw":                       `invalid volume mode "raw"`,
		"dv disk --image-path=x --no-create --size=1Gi":                  "--no-create takes the DataVolume or claim as it is",
		"dv disk --image-path=x --block-volume --volume-mode=filesystem": "contradict",
		"dv disk --image-path=x --default-preference-kind=Kind":          "needs --default-preference",
		"dv disk --image-path=x --default-instancetype-kind=Kind":        "needs --default-instancetype",
		"dv disk --size=1Gi --image-path=/does/not/exist":                "no such file",
		"dv disk --size=1Gi --image-path=/dev/null":                      "is no file",
		"dv disk --size=1Gi --image-path=" + empty:                       "the image " + empty + " is empty",
		"pvc disk --size=1Gi --archive-path=" + empty:                    "the archive " + empty + " is empty",
	} {
		if out, err := run(t, line); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%s: %v, want %s; it printed %q", line, err, want, out)
		}
	}
}

func TestTheDataVolumeIsAsTheFlagsSay(t *testing.T) {
	u := &upload{namespace: "shop", name: "disk", options: &options{
		size: "10Gi", class: "fast", access: "ReadWriteMany", mode: "block", forceBind: true,
		defaults: defaults{instancetype: "u1.small", preference: "debian", preferenceKind: "VirtualMachinePreference"},
	}}
	dv, err := (&volume{upload: u}).build()
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(dv)
	if err != nil {
		t.Fatal(err)
	}
	const want = `metadata:
  annotations:
    cdi.kubevirt.io/storage.bind.immediate.requested: "true"
  labels:
    instancetype.kubevirt.io/default-instancetype: u1.small
    instancetype.kubevirt.io/default-preference: debian
    instancetype.kubevirt.io/default-preference-kind: VirtualMachinePreference
  name: disk
  namespace: shop
spec:
  source:
    upload: {}
  storage:
    accessModes:
    - ReadWriteMany
    resources:
      requests:
        storage: 10Gi
    storageClassName: fast
    volumeMode: Block
status: {}
`
	if string(got) != want {
		t.Errorf("got\n%s", got)
	}
	for _, size := range []string{"", "large", "-1Gi", "0"} {
		u.size = size
		if _, err := (&volume{upload: u}).build(); err == nil || !strings.Contains(err.Error(), "size") {
			t.Errorf("--size=%s: %v", size, err)
		}
	}
}

func TestTheProxysAddress(t *testing.T) {
	u := &upload{options: &options{}}
	for given, want := range map[string]string{
		"upload.example.com": "https://upload.example.com", "https://upload.example.com:31001/x/": "https://upload.example.com:31001/x/",
		"http://localhost:8080": "http://localhost:8080", "ftp://upload": "", "https://": "", "": "",
	} {
		p, err := u.proxyAt(given, "--uploadproxy-url", nil)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "--uploadproxy-url") {
				t.Errorf("%s: %v", given, err)
			}
			continue
		}
		if err != nil || p.base.String() != want {
			t.Errorf("%s: %v %v", given, p, err)
		}
	}
}
