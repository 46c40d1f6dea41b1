package cloudinit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/guestid"
	"github.com/slipway-vm/slipway/runtime/cloudinit"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

func vmi() *v1.VirtualMachineInstance {
	out := &v1.VirtualMachineInstance{}
	out.Namespace, out.Name = "shop", "web"
	return out
}

func TestFromVMI(t *testing.T) {
	secret := &corev1.LocalObjectReference{Name: "s"}
	cases := map[string]struct {
		source      v1.CloudInitNoCloudSource
		keys        map[string]string
		wantUser    string
		wantNetwork string
		wantError   string
	}{
		"inline":             {source: v1.CloudInitNoCloudSource{UserData: "#cloud-config", NetworkData: "version: 2"}, wantUser: "#cloud-config", wantNetwork: "version: 2"},
		"base64":             {source: v1.CloudInitNoCloudSource{UserDataBase64: "aGVsbG8=", NetworkDataBase64: "bmV0"}, wantUser: "hello", wantNetwork: "net"},
		"bad base64 says so": {source: v1.CloudInitNoCloudSource{UserDataBase64: "%%"}, wantError: "user data: decoding base64"},
		"Secrets in either spelling": {
			source: v1.CloudInitNoCloudSource{UserDataSecretRef: secret, NetworkDataSecretRef: secret},
			keys:   map[string]string{"userData": "u", "networkdata": "n"}, wantUser: "u", wantNetwork: "n",
		},
		"a Secret without the key names it": {source: v1.CloudInitNoCloudSource{UserDataSecretRef: secret}, wantError: "no key userdata"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for key, value := range c.keys {
				if err := os.WriteFile(filepath.Join(dir, key), []byte(value), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := cloudinit.FromVMI(vmi(), &c.source, dir)
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Fatalf("error %v, want one with %q", err, c.wantError)
				}
				return
			}
			if err != nil || string(got.UserData) != c.wantUser || string(got.NetworkData) != c.wantNetwork || got.InstanceID != "web.shop" || got.Hostname != "web" {
				t.Fatalf("got %+v, %v", got, err)
			}
		})
	}
}

// A guest whose VM was renamed is the same to cloud-init, under another host name.
func TestARenamedGuestIsTheSameInstance(t *testing.T) {
	out := vmi()
	out.Annotations = map[string]string{guestid.AnnotationName: "store"}
	got, err := cloudinit.FromVMI(out, &v1.CloudInitNoCloudSource{}, "")
	if err != nil || got.InstanceID != "store.shop" || got.Hostname != "web" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestISOIsReadWithItsLongNames(t *testing.T) {
	need.Program(t, "isoinfo", "genisoimage")
	path := filepath.Join(t.TempDir(), "seed.iso")
	data := cloudinit.Data{InstanceID: "web.shop", Hostname: "web", UserData: []byte(strings.Repeat("#cloud-config\n", 5000)), NetworkData: []byte("version: 2\n"),
		PublicKeys: []string{"ssh-ed25519 AAA a@x"}}
	if err := cloudinit.WriteISO(path, data); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".iso-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size()%2048 != 0 {
		t.Errorf("the image's size %d is no multiple of a sector (%v)", info.Size(), err)
	}
	read := func(args ...string) string {
		out, err := exec.Command("isoinfo", append(args, "-i", path)...).Output()
		if err != nil {
			t.Fatalf("isoinfo %v: %v", args, err)
		}
		return string(out)
	}
	if header := read("-d"); !strings.Contains(header, "Volume id: cidata") {
		t.Errorf("the label is not cidata:\n%s", header)
	}
	for _, names := range []string{"-R", "-J"} {
		if got := read(names, "-x", "/user-data"); got != string(data.UserData) {
			t.Errorf("user-data by %s has %d bytes, want %d", names, len(got), len(data.UserData))
		}
		if got := read(names, "-x", "/meta-data"); got != `{"instance-id":"web.shop","local-hostname":"web","public-keys":{"0":"ssh-ed25519 AAA a@x"}}` {
			t.Errorf("meta-data by %s: %q", names, got)
		}
		if got := read(names, "-x", "/network-config"); got != "version: 2\n" {
			t.Errorf("network-config by %s: %q", names, got)
		}
	}
}
