package volume

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

const (
	machine  = "PUT /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachines/web/"
	instance = "PUT /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/"
	claimAt  = "GET /api/v1/namespaces/shop/persistentvolumeclaims/data"
)

func run(cluster Cluster, line string) (string, error) {
	root := &cobra.Command{Use: "virtctl", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(NewCommands(cluster)...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(strings.Fields(line))
	err := root.Execute()
	return out.String(), err
}

func TestVolumesAreAskedFor(t *testing.T) {
	const claim = `"volumeSource":{"persistentVolumeClaim":{"claimName":"data","hotpluggable":true}}`
	claimObject := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop"},
	}
	const added = "Successfully submitted add volume request to VM web for volume data\n"
	const removed = "Successfully submitted remove volume request to VM web for volume data\n"
	for line, c := range map[string]struct{ request, body, prints string }{
		"addvolume web --volume-name=data": {
			instance + "addvolume", `{"name":"data","disk":{"name":"data","disk":{"bus":"scsi"},"serial":"data"},` + claim + `}`, added,
		},
		"addvolume web --volume-name=data --persist --serial=s1 --bus=virtio --cache=none --dry-run": {
			machine + "addvolume", `{"name":"data","disk":{"name":"data","disk":{"bus":"virtio"},"serial":"s1","cache":"none"},` + claim + `,"dryRun":["All"]}`, added,
		},
		"addvolume web --volume-name=data --disk-type=lun": {
			instance + "addvolume", `{"name":"data","disk":{"name":"data","lun":{"bus":"scsi"},"serial":"data"},` + claim + `}`, added,
		},
		"removevolume web --volume-name=data":           {instance + "removevolume", `{"name":"data"}`, removed},
		"removevolume web --volume-name=data --persist": {machine + "removevolume", `{"name":"data"}`, removed},
	} {
		t.Run(line, func(t *testing.T) {
			server := standin.Start(t)
			server.On(c.request, standin.Accepted)
			server.On(claimAt, standin.JSON(claimObject))
			out, err := run(server, line)
			if err != nil || out != c.prints {
				t.Errorf("%v, printed %q", err, out)
			}
			if want := c.request + " " + c.body; !slices.Contains(server.Seen(), want) {
				t.Errorf("sent %q, want %q", server.Seen(), want)
			}
		})
	}
}

func TestMistakesAreToldBeforeAnythingIsSent(t *testing.T) {
	for line, want := range map[string]string{
		"addvolume web": "volume-name",
		"addvolume web --volume-name=data --bus=sata":                   "use scsi or virtio",
		"addvolume web --volume-name=data --disk-type=tape":             "use disk or lun",
		"addvolume web --volume-name=data --disk-type=lun --bus=virtio": "use scsi",
		"addvolume web --volume-name=data --cache=all":                  "invalid cache value all",
		"addvolume web --volume-name=data":                              "Volume data is not a DataVolume or PersistentVolumeClaim",
		"removevolume web":                                              "volume-name",
	} {
		t.Run(line, func(t *testing.T) {
			server := standin.Start(t)
			if _, err := run(server, line); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		})
	}
}
