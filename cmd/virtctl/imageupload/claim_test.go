package imageupload

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/scheme"
	shared "github.com/slipway-vm/slipway/internal/upload"
)

// sending is an upload to claim disk of a cluster that has objects.
func sending(o options, objects ...client.Object) (*claim, *bytes.Buffer) {
	out := &bytes.Buffer{}
	cmd := &cobra.Command{}
	cmd.SetOut(out)
	u := &upload{options: &o, cmd: cmd, namespace: "shop", name: "disk", patience: stalledAfter}
	u.client = fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build()
	c := &claim{upload: u}
	u.target = c
	return c, out
}

// there is claim disk with notes.
func there(notes map[string]string, changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "disk", UID: "1", Annotations: notes}}
	for _, change := range changes {
		change(c)
	}
	return c
}

func TestTheClaimIsAsTheFlagsSay(t *testing.T) {
	c, out := sending(options{size: "10Gi", class: "fast", forceBind: true, archive: "x.tar", dataSource: true, defaults: defaults{preference: "debian"}})
	if err := c.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "PersistentVolumeClaim shop/disk created\nDataSource shop/disk created\n"; out.String() != want {
		t.Errorf("it says %q", out)
	}
	c.now.ResourceVersion = ""
	got, err := yaml.Marshal(c.now)
	if err != nil {
		t.Fatal(err)
	}
	const want = `metadata:
  annotations:
    cdi.kubevirt.io/storage.bind.immediate.requested: "true"
    cdi.kubevirt.io/storage.contentType: archive
    cdi.kubevirt.io/storage.upload.target: ""
  labels:
    instancetype.kubevirt.io/default-preference: debian
  name: disk
  namespace: shop
spec:
  accessModes:
  - ReadWriteOnce
  resources:
    requests:
      storage: 10Gi
  storageClassName: fast
status: {}
`
	if string(got) != want {
		t.Errorf("got\n%s", got)
	}
}

func TestWhetherAClaimTakesAnImage(t *testing.T) {
	const size = "1Gi"
	image, files, forced := options{image: "x", size: size}, options{archive: "x", size: size}, options{image: "x", noCreate: true}
	target := map[string]string{shared.AnnotationTarget: "", annotationContent: "kubevirt"}
	holds := map[string]string{shared.AnnotationTarget: "", annotationContent: "archive"}
	dataVolume := func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "disk", UID: "2", Controller: new(true)}}
	}
	from := func(kind string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: kind, Name: "s"}
		}
	}
	for name, c := range map[string]struct {
		options options
		claim   *corev1.PersistentVolumeClaim
		fails   string
		marked  string // its content type, when it was made a target
	}{
		"a target":                        {image, there(target), "", ""},
		"a target of an archive":          {files, there(holds), "", ""},
		"a target of a DataVolume":        {image, there(target, dataVolume), "", ""},
		"one with a source that is sent":  {image, there(nil, from("VolumeUploadSource")), "", ""},
		"any":                             {image, there(nil), "not available for upload: give --no-create", ""},
		"any that may be written over":    {forced, there(nil), "", "kubevirt"},
		"any that files may be put on":    {options{archive: "x", noCreate: true}, there(nil), "", "archive"},
		"none":                            {forced, nil, "does not exist: leave out --no-create", ""},
		"one that is filled":              {forced, there(map[string]string{annotationPhase: "Succeeded"}), "already successfully imported/cloned/updated", ""},
		"one with another source":         {forced, there(nil, from("VolumeImportSource")), "its dataSource fills it", ""},
		"one that a DataVolume fills":     {forced, there(nil, dataVolume), "DataVolume disk fills it", ""},
		"an archive to that of an image":  {files, there(target), "doesn't have archive contentType", ""},
		"an image to that of an archive":  {image, there(holds), "takes an archive: give --archive-path", ""},
		"an archive to a device":          {options{archive: "x", noCreate: true}, there(nil, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }), "volumeMode is Block", ""},
		"a new one without a size":        {options{image: "x"}, nil, "the size must be specified", ""},
		"a new one that is of a bad size": {options{image: "x", size: "large"}, nil, "is no size", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if c.claim != nil {
				objects = append(objects, c.claim)
			}
			got, _ := sending(c.options, objects...)
			err := got.prepare(t.Context())
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v, want %s", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			now := &corev1.PersistentVolumeClaim{}
			if err := got.client.Get(t.Context(), got.key(), now); err != nil {
				t.Fatal(err)
			}
			if is := got.marked(); c.marked != "" && (!is || now.Annotations[annotationContent] != c.marked || now.UID != "1") || c.marked == "" && is != (c.claim.Annotations != nil) {
				t.Errorf("the claim says %v", now.Annotations)
			}
		})
	}
}

// What a pod has open is not written over.
func TestAClaimInUseIsMadeNoTarget(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "virt-launcher-shop"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}
	c, _ := sending(options{image: "x", noCreate: true}, there(nil), pod)
	if err := c.prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "pod virt-launcher-shop uses it") {
		t.Errorf("%v", err)
	}
	now := &corev1.PersistentVolumeClaim{}
	if err := c.client.Get(t.Context(), c.key(), now); err != nil || len(now.Annotations) > 0 {
		t.Errorf("the claim says %v, %v", now.Annotations, err)
	}
}

func TestAClaimThatIsGivenUpIsNoTarget(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	why := errors.New("nobody comes")
	for name, c := range map[string]struct {
		sent   bool
		notes  map[string]string
		marked bool   // afterwards
		says   string // beside why
	}{
		"before it is sent to":    {false, map[string]string{annotationContent: "archive", "mine": "too"}, false, ""},
		"after it was":            {true, nil, true, "kubectl annotate pvc -n shop disk cdi.kubevirt.io/storage.upload.target-"},
		"one that was a target":   {false, map[string]string{shared.AnnotationTarget: "", annotationContent: "kubevirt"}, true, ""},
		"one without annotations": {false, nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := sending(options{image: "x", noCreate: true}, there(c.notes))
			if err := got.prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := got.giveUp(over, c.sent, why)
			if !errors.Is(err, why) || c.says == "" && err.Error() != why.Error() || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s", err, c.says)
			}
			now := &corev1.PersistentVolumeClaim{}
			if err := got.client.Get(t.Context(), got.key(), now); err != nil {
				t.Fatal(err)
			}
			if _, marked := now.Annotations[shared.AnnotationTarget]; marked != c.marked || !marked && !maps.Equal(now.Annotations, c.notes) {
				t.Errorf("the claim says %v", now.Annotations)
			}
		})
	}
}

func TestHowFarAClaimIs(t *testing.T) {
	chosen := func(phase string) map[string]string {
		return map[string]string{shared.AnnotationTarget: "", population.AnnotationFilledBy: "prime-1", population.AnnotationUse: "false", annotationPhase: phase, population.AnnotationMessage: "words"}
	}
	waiting := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prime-1"}, Status: cdiv1.DataVolumeStatus{Phase: cdiv1.WaitForFirstConsumer}}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		late  bool // the time is over
		claim *corev1.PersistentVolumeClaim
		with  []client.Object
		goal  goal
		done  bool
		fails string
	}{
		"nothing yet":             {false, there(map[string]string{shared.AnnotationTarget: ""}), nil, ready, false, ""},
		"an image is taken":       {false, there(map[string]string{shared.AnnotationReady: "true"}), nil, ready, true, ""},
		"it is being written":     {false, there(map[string]string{shared.AnnotationReady: "true"}), nil, whole, false, ""},
		"it was written":          {false, there(chosen("Succeeded")), nil, whole, true, ""},
		"another was faster":      {false, there(chosen("Succeeded")), nil, ready, false, "already successfully"},
		"it failed":               {false, there(chosen("Failed")), nil, ready, false, "PVC disk has failed: words"},
		"an earlier one failed":   {false, there(map[string]string{shared.AnnotationTarget: "", annotationPhase: "Failed"}), nil, ready, false, ""},
		"nobody uses it":          {false, there(chosen("")), []client.Object{waiting}, ready, false, "WaitForFirstConsumer state, make sure the PVC is Bound, or use force-bind flag"},
		"the time is over":        {true, there(chosen("")), nil, ready, false, "takes no image yet: words; raise --wait-secs"},
		"it is still not written": {true, there(nil), nil, whole, false, "is not filled yet: nothing is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := sending(options{image: "x"}, c.with...)
			got.now = c.claim
			ctx := t.Context()
			if c.late {
				ctx = over
			}
			done, err := got.reached(ctx, c.goal)
			if done != c.done || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%t %v, want %t %s", done, err, c.done, c.fails)
			}
		})
	}
}

// The network may be away while the disk is written.
func TestTheWaitOutlivesTheNetwork(t *testing.T) {
	c, _ := sending(options{image: "x"}, there(nil))
	c.now = there(nil)
	away := &url.Error{Op: "Get", URL: "https://api", Err: syscall.EHOSTUNREACH}
	c.client = interceptor.NewClient(c.client, interceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			return nil, away
		},
	})
	if err := c.next(t.Context()); err != nil || c.now == nil {
		t.Errorf("%v, %v", c.now, err)
	}
}

func TestAClaimThatGoesEndsTheWait(t *testing.T) {
	c, _ := sending(options{image: "x"}, there(nil))
	c.now = there(nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.next(over); err != nil || c.now == nil {
		t.Errorf("when the time is over: %v, %v", c.now, err)
	}
	c.client = interceptor.NewClient(c.client, interceptor.Funcs{
		Watch: func(ctx context.Context, to client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			changes, err := to.Watch(ctx, list, options...)
			if err := to.Delete(ctx, there(nil)); err != nil {
				t.Error(err)
			}
			return changes, err
		},
	})
	if err := c.next(t.Context()); err == nil || !strings.Contains(err.Error(), "PVC disk was deleted") {
		t.Errorf("when it goes: %v", err)
	}
}
