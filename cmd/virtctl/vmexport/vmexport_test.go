package vmexport

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

const exportsAt = "/apis/export.kubevirt.io/v1beta1/namespaces/shop/virtualmachineexports"

func run(cluster Cluster, line string) (string, error) {
	root := &cobra.Command{Use: "virtctl", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(NewCommand(cluster))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(append([]string{"vmexport"}, strings.Fields(line)...))
	err := root.Execute()
	return out.String(), err
}

func TestExportsAreMadeAndDeleted(t *testing.T) {
	for line, c := range map[string]struct{ request, has, prints string }{
		"create e --vm=web": {
			"POST " + exportsAt, `"source":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"web"}`, "VirtualMachineExport 'shop/e' created",
		},
		"create e --snapshot=before --ttl=90s": {
			"POST " + exportsAt, `"source":{"apiGroup":"snapshot.kubevirt.io","kind":"VirtualMachineSnapshot","name":"before"},"ttlDuration":"1m30s"`,
			"VirtualMachineExport 'shop/e' created",
		},
		"create e --pvc=data": {
			"POST " + exportsAt, `"source":{"apiGroup":"","kind":"PersistentVolumeClaim","name":"data"}`, "VirtualMachineExport 'shop/e' created",
		},
		"create e --vm=web --labels=team=a,tier=b --annotations=note=c": {
			"POST " + exportsAt, `"labels":{"team":"a","tier":"b"},"annotations":{"note":"c"}`, "VirtualMachineExport 'shop/e' created",
		},
		"delete e":       {"DELETE " + exportsAt + "/e", "", "VirtualMachineExport 'shop/e' deleted"},
		"delete another": {"DELETE " + exportsAt + "/another", "", "VirtualMachineExport 'shop/another' does not exist"},
	} {
		t.Run(line, func(t *testing.T) {
			server := standin.Start(t)
			made := &exportv1.VirtualMachineExport{
				TypeMeta: metav1.TypeMeta{APIVersion: "export.kubevirt.io/v1beta1", Kind: "VirtualMachineExport"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"},
			}
			server.On("POST "+exportsAt, standin.JSON(made))
			server.On("DELETE "+exportsAt+"/e", standin.JSON(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"}))
			out, err := run(server, line)
			if err != nil || !strings.HasPrefix(out, c.prints) {
				t.Errorf("%v, printed %q", err, out)
			}
			seen := server.Seen()
			if len(seen) != 1 || !strings.HasPrefix(seen[0], c.request) || !strings.Contains(seen[0], c.has) {
				t.Errorf("sent %q, want %s with %s", seen, c.request, c.has)
			}
		})
	}
}

func TestMistakesAreToldBeforeAnythingIsAskedFor(t *testing.T) {
	for line, want := range map[string]string{
		"create e":                             "need to specify export kind",
		"create e --vm=a --pvc=b":              "contradict each other",
		"create e --vm=a --ttl=soon":           `invalid --ttl "soon"`,
		"create e --vm=a --ttl=0s":             "write a time such as 30m",
		"create":                               "accepts 1 arg(s)",
		"download e":                           "'--output' flag",
		"download e --output=x --format=qcow2": "acceptable values are gzip or raw",
		"download e --output=x --local-port=5": "--local-port needs --port-forward",
		"download e --output=x --port-forward --service-url=a":        "contradict each other",
		"download e --output=x --keep-vme --delete-vme":               "contradict each other",
		"download e --output=x --ttl=5m":                              "--ttl is about a new export",
		"download e --include-secret --output=x":                      "need --manifest",
		"download e --output=x --labels=a=b":                          "are about a new export",
		"download e --vm=a --manifest --delete-vme":                   "contradict each other",
		"create e --vm=a --labels=a":                                  "must be formatted as key=value",
		"download e --output=x --vm=a --snapshot=b":                   "contradict each other",
		"download e --manifest --volume=a":                            "incompatible with",
		"download e --manifest --manifest-output-format=xml":          "acceptable values are json or yaml",
		"download e --output=x --local-port=99999999 --port-forward ": "invalid argument",
	} {
		t.Run(line, func(t *testing.T) {
			server := standin.Start(t)
			if _, err := run(server, line); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
			if seen := server.Seen(); len(seen) > 0 {
				t.Errorf("sent %q", seen)
			}
		})
	}
}

func TestWhatIsDownloadedIsChosen(t *testing.T) {
	volume := func(name string, formats ...string) exportv1.VirtualMachineExportVolume {
		v := exportv1.VirtualMachineExportVolume{Name: name}
		for _, format := range formats {
			v.Formats = append(v.Formats, exportv1.VirtualMachineExportVolumeFormat{Format: exportv1.ExportVolumeFormat(format), Url: name + "/" + format})
		}
		return v
	}
	disk, files := volume("root", "raw", "gzip"), volume("dumps", "dir", "tar.gz")
	for sentence, c := range map[string]struct {
		download Download
		volumes  []exportv1.VirtualMachineExportVolume
		want     string
	}{
		"the only disk, packed":                 {Download{}, []exportv1.VirtualMachineExportVolume{disk}, "root/gzip"},
		"the only disk, raw":                    {Download{format: "raw"}, []exportv1.VirtualMachineExportVolume{disk}, "root/raw"},
		"files, packed":                         {Download{volume: "dumps"}, []exportv1.VirtualMachineExportVolume{disk, files}, "dumps/tar.gz"},
		"files, unpacked":                       {Download{volume: "dumps", format: "raw"}, []exportv1.VirtualMachineExportVolume{disk, files}, "dumps/tar.gz, unpacked"},
		"one file":                              {Download{File: "a b.dump"}, []exportv1.VirtualMachineExportVolume{files}, "dumps/dir/a%20b.dump"},
		"one file of a disk":                    {Download{File: "a"}, []exportv1.VirtualMachineExportVolume{disk}, "has no single files"},
		"two disks, and which is not said":      {Download{}, []exportv1.VirtualMachineExportVolume{disk, files}, "--volume flag: root, dumps"},
		"a volume that is not there":            {Download{volume: "x"}, []exportv1.VirtualMachineExportVolume{disk, files}, "has no volume x: name one of root, dumps"},
		"the only disk, under another name":     {Download{volume: "x"}, []exportv1.VirtualMachineExportVolume{disk}, "has no volume x"},
		"a volume in formats that nobody knows": {Download{}, []exportv1.VirtualMachineExportVolume{volume("root", "vmdk")}, "unable to get a valid URL"},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := &download{Download: &c.download, key: client.ObjectKey{Namespace: "shop", Name: "e"}}
			got, unpack, err := d.address(&exportv1.VirtualMachineExportLink{Volumes: c.volumes})
			if unpack {
				got += ", unpacked"
			}
			if err != nil {
				got = err.Error()
			}
			if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestAddressesGetThePortOfAService(t *testing.T) {
	var got []string
	for _, address := range []string{"192.0.2.7:30443", "https://export.example.com/", "2001:db8::1", "[2001:db8::1]:8443"} {
		got = append(got, withPort(address))
	}
	if want := []string{"192.0.2.7:30443", "export.example.com:443", "[2001:db8::1]:443", "[2001:db8::1]:8443"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
