package vmexport

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
)

func TestPathsAreReadAsTheyAreWritten(t *testing.T) {
	for _, format := range append(append([]exportv1.ExportVolumeFormat{}, Disk...), Files...) {
		url := URL(InternalBase("shop", "e"), "web-root.1", format)
		path, found := strings.CutPrefix(url, "https://virt-export-e.shop.svc")
		if !found {
			t.Fatalf("%s is elsewhere", url)
		}
		volume, got, rest, found := ParsePath(path)
		if !found || volume != "web-root.1" || got != format || rest != "" {
			t.Errorf("%s is read as %s of %s, %q, %v", url, got, volume, rest, found)
		}
	}
	for path, want := range map[string]string{"/volumes/a/dir/": "/", "/volumes/a/dir/b/c": "/b/c", "/volumes/a/dir/../../x": "/../../x"} {
		if volume, format, rest, found := ParsePath(path); !found || volume != "a" || format != exportv1.Dir || rest != want {
			t.Errorf("%s is read as %s of %s, %q, %v", path, format, volume, rest, found)
		}
	}
	for _, path := range []string{"", "/", "/volumes", "/volumes/", "/volumes/a", "/volumes/a/", "/volumes//disk.img", "/volumes/a/disk.img/x", "/volumes/a/direct", "/other/a/disk.img"} {
		if _, _, _, found := ParsePath(path); found {
			t.Errorf("%s is found", path)
		}
	}
}

func TestNamesFitAService(t *testing.T) {
	if got := ServerName("web"); got != "virt-export-web" {
		t.Errorf("got %s", got)
	}
	seen := map[string]bool{}
	for _, export := range []string{"a.b", "a-b", strings.Repeat("a", 60), strings.Repeat("a", 61), strings.Repeat("a.", 60)} {
		name := ServerName(export)
		if len(name) > 63 || strings.Contains(name, ".") || seen[name] {
			t.Errorf("%s becomes %s", export, name)
		}
		seen[name] = true
	}
}

func TestWhatIsExportedIsKnownByItsPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/volumes/root/disk.img": true, "/volumes/root/disk.img.gz": true, "/volumes/a/disk.tar.gz": true, "/volumes/a/dir": true, "/volumes/a/dir/b/c": true,
		"/internal/manifests/all": true, "/internal/manifests/secret": true, "/external/manifests/all": true, "/external/manifests/secret": true,
		"": false, "/": false, "/healthz": false, "/volumes/root": false, "/volumes//disk.img": false, "/volumes/a/directory": false,
		"/volumes/../internal/manifests/secret": false, "/internal/manifests/all/x": false, "/internal/manifests": false, "/metrics": false,
	} {
		if got := IsExported(path); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

func TestAnExportEnds(t *testing.T) {
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	export := &exportv1.VirtualMachineExport{}
	export.CreationTimestamp = metav1.NewTime(began)
	if got := Expiry(export); got != began.Add(2*time.Hour) {
		t.Errorf("ends at %s without a limit", got)
	}
	export.Spec.TTLDuration = &metav1.Duration{Duration: time.Minute}
	if got := Expiry(export); got != began.Add(time.Minute) {
		t.Errorf("ends at %s", got)
	}
}

func TestThePathsOfTheProxyAreReadAsTheyAreWritten(t *testing.T) {
	url := URL(ExternalBase("exports.example.com", "shop", "web.disks"), "root", exportv1.KubeVirtGz)
	if want := "https://exports.example.com/api/export.kubevirt.io/v1/namespaces/shop/virtualmachineexports/web.disks/volumes/root/disk.img.gz"; url != want {
		t.Errorf("got %s", url)
	}
	const below = "/namespaces/shop/virtualmachineexports/e"
	for path, want := range map[string]string{
		"v1" + below + "/volumes/root/disk.img":        "/volumes/root/disk.img",
		"v1beta1" + below + "/volumes/a/dir/b%2Fc":     "/volumes/a/dir/b%2Fc",
		"v1alpha1" + below + "/external/manifests/all": "/external/manifests/all",
		"v1" + below + "/":                             "/",
		"v1" + below + "/e/e":                          "/e/e",
		"v1" + below + "/../x":                         "/../x",
	} {
		namespace, export, prefix, rest, found := CutExternal("/api/export.kubevirt.io/" + path)
		if !found || namespace != "shop" || export != "e" || rest != want || prefix+rest != "/api/export.kubevirt.io/"+path {
			t.Errorf("%s is read as %s of %s/%s below %s, %v", path, rest, namespace, export, prefix, found)
		}
	}
	for _, path := range []string{
		"", "/", "/healthz", "/volumes/root/disk.img", "/api/export.kubevirt.io/v2" + below + "/x", "/api/export.kubevirt.io/v1" + below,
		"/api/export.kubevirt.io/v1/namespaces//virtualmachineexports/e/x", "/api/export.kubevirt.io/v1/namespaces/shop/virtualmachineexports//x",
		"/api/export.kubevirt.io/v1/namespaces/shop/virtualmachines/e/x", "/apis/export.kubevirt.io/v1" + below + "/x", "/x/api/export.kubevirt.io/v1" + below + "/x",
	} {
		if _, _, _, _, found := CutExternal(path); found {
			t.Errorf("%q is found", path)
		}
	}
}
