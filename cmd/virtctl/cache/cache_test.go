package cache

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/stepcache"
)

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// cluster is an API in memory.
type cluster struct {
	client.WithWatch
	err error
}

func (c cluster) Namespace() (string, error)        { return "builds", nil }
func (c cluster) Client() (client.WithWatch, error) { return c, c.err }

// entry is a ready entry that was used so many hours ago.
func entry(namespace, name string, hours int) *cdiv1.DataVolume {
	key := stepcache.Key("step1:" + strings.Repeat("0", 64-len(name)) + name)
	at := noon.Add(-time.Duration(hours) * time.Hour)
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(at),
			Labels: map[string]string{stepcache.LabelState: string(stepcache.Ready), stepcache.LabelKey: key.Label()},
			Annotations: map[string]string{
				stepcache.AnnotationKey: string(key), stepcache.AnnotationDigest: "slipway1:00", stepcache.AnnotationStep: "virt-customize",
				stepcache.AnnotationFilled: stepcache.FormatTime(at.Add(-time.Hour)), stepcache.AnnotationUsed: stepcache.FormatTime(at), stepcache.AnnotationRun: "builds/golden-customize",
			},
		},
		Spec: cdiv1.DataVolumeSpec{PVC: &corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fast"),
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
		}},
		Status: cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded},
	}
}

func newCluster(objects ...client.Object) cluster {
	return cluster{WithWatch: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build()}
}

func run(command *cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetErr(&out)
	command.SetArgs(args)
	command.SilenceErrors, command.SilenceUsage = true, true
	err := command.ExecuteContext(context.Background())
	return out.String(), err
}

func clock() time.Time { return noon }

func TestLs(t *testing.T) {
	broken := entry("builds", "c", 3)
	delete(broken.Annotations, stepcache.AnnotationDigest)
	other := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "builds", Name: "no-entry"}}
	c := newCluster(entry("builds", "a", 2), entry("builds", "b", 1), broken, entry("shop", "d", 4), other)
	for args, want := range map[string]string{
		"": "NAME   STEP             STATE    SIZE   AGE    USED\n" +
			"b      virt-customize   ready    5Gi    120m   60m\n" +
			"a      virt-customize   ready    5Gi    3h     120m\n" +
			"c      virt-customize   broken   5Gi    4h     3h\n",
		"-o name": "datavolume.cdi.kubevirt.io/b\ndatavolume.cdi.kubevirt.io/a\ndatavolume.cdi.kubevirt.io/c\n",
		"-A -o name": "builds   datavolume.cdi.kubevirt.io/b\nbuilds   datavolume.cdi.kubevirt.io/a\nbuilds   datavolume.cdi.kubevirt.io/c\n" +
			"shop     datavolume.cdi.kubevirt.io/d\n",
	} {
		got, err := run(newListCommand(c, clock), strings.Fields(args)...)
		if err != nil || got != want {
			t.Errorf("ls %s: %v\n%s\nwant\n%s", args, err, got, want)
		}
	}
	for args, want := range map[string]string{"-o wide": "builds/golden-customize   slipway1:00   step1:000", "-o json": `"bytes": 5368709120`} {
		if got, err := run(newListCommand(c, clock), strings.Fields(args)...); err != nil || !strings.Contains(got, want) {
			t.Errorf("ls %s: %v\n%s\nwant %s", args, err, got, want)
		}
	}
	if got, err := run(newListCommand(newCluster(), clock)); err != nil || got != "No entries in namespace builds.\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := run(newListCommand(newCluster(), clock), "-o", "json"); err != nil || got != "[]\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := run(newListCommand(c, clock), "-o", "yaml"); err == nil || err.Error() != `--output: "yaml" is not known; write wide, name or json` {
		t.Errorf("%v", err)
	}
	if _, err := run(newListCommand(cluster{err: errors.New("no cluster")}, clock)); err == nil || err.Error() != "no cluster" {
		t.Errorf("%v", err)
	}
}

func TestPrune(t *testing.T) {
	policy := func(data map[string]string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "builds", Name: stepcache.ConfigName}, Data: data}
	}
	clone := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "builds", Name: "clone"}, Spec: cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "a", Namespace: "builds"}},
	}}
	for name, c := range map[string]struct {
		args string
		more []client.Object
		left string
		says string
		err  string
	}{
		"by the default policy":   {left: "a b", says: "Nothing to delete, 2 entries stay."},
		"by the namespace's":      {more: []client.Object{policy(map[string]string{"maxCount": "1"})}, left: "b", says: "a (virt-customize) deleted: there are more than 1 entries"},
		"flags alone count":       {args: "--older-than 90m", more: []client.Object{policy(map[string]string{"maxCount": "0"})}, left: "b", says: "not used for more than 1h30m0s"},
		"by number":               {args: "--keep 0", left: "", says: "b (virt-customize) deleted"},
		"by size":                 {args: "--max-size 7Gi", left: "b"},
		"only said":               {args: "--keep 0 --dry-run", left: "a b", says: "a (virt-customize) would be deleted"},
		"one in use stays":        {args: "--keep 0", more: []client.Object{clone}, left: "a"},
		"a number that is none":   {args: "--keep -2", left: "a b", err: "--keep: -2 is no number of entries"},
		"a size that is none":     {args: "--max-size big", left: "a b", err: `--max-size: "big" is no size`},
		"a time that is negative": {args: "--older-than -1h", left: "a b", err: "--older-than: -1h0m0s is negative"},
		"a policy that is none":   {more: []client.Object{policy(map[string]string{"max": "1"})}, left: "a b", err: "reading ConfigMap builds/slipway-step-cache: max is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			api := newCluster(append(c.more, entry("builds", "a", 2), entry("builds", "b", 1), entry("shop", "d", 9999))...)
			got, err := run(newPruneCommand(api, clock), strings.Fields(c.args)...)
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) || !strings.Contains(got, c.says) {
				t.Errorf("%v\n%s\nwant %s%s", err, got, c.says, c.err)
			}
			left, err := entries(context.Background(), api, "builds")
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range left {
				names = append(names, e.Name)
			}
			if strings.Join(names, " ") != c.left {
				t.Errorf("%v are left, want %s", names, c.left)
			}
		})
	}
}

// Each verb tells how it is used.
func TestHelp(t *testing.T) {
	for _, command := range NewCommand(newCluster()).Commands() {
		if command.Short == "" || !strings.Contains(command.Example, "virtctl cache "+command.Name()) {
			t.Errorf("%s has no example", command.Name())
		}
	}
}
