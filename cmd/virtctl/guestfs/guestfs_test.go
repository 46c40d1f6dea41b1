package guestfs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

func claim(mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "disk"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeMode: &mode},
	}
}

func TestPods(t *testing.T) {
	vm := &virtv1.VirtualMachine{}
	vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: virtv1.VirtualMachineInstanceSpec{
			NodeSelector: map[string]string{"disktype": "ssd"},
			Tolerations:  []corev1.Toleration{{Key: "virtualization", Operator: corev1.TolerationOpExists}},
		},
	}
	for name, c := range map[string]struct {
		options  options
		vm       *virtv1.VirtualMachine
		mode     corev1.PersistentVolumeMode
		terminal bool
	}{
		"filesystem": {options{kvm: true}, &virtv1.VirtualMachine{}, corev1.PersistentVolumeFilesystem, true},
		"block-root": {options{root: true}, &virtv1.VirtualMachine{}, corev1.PersistentVolumeBlock, false},
		"placed":     {options{uid: "107", gid: "36", fsGroup: "107"}, vm, corev1.PersistentVolumeFilesystem, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.image, c.options.pullPolicy = "registry.example/guestfs:1", "IfNotPresent"
			ids, err := c.options.identity()
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(c.options.pod(claim(c.mode), c.vm, ids, c.terminal))
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, filepath.Join("testdata", name+".yaml"), got)
		})
	}
}

func TestImages(t *testing.T) {
	for want, parts := range map[string]image{
		"registry.example/guestfs:1":             {Whole: "registry.example/guestfs:1", Registry: "r", Tag: "t"},
		"quay.io/kubevirt/libguestfs-tools:v1":   {Registry: "quay.io/kubevirt", Tag: "v1"},
		"r/pre-libguestfs-tools@sha256:abc":      {Registry: "r", Prefix: "pre-", Digest: "sha256:abc", Tag: "v1"},
		"neither the digest nor the tag for the": {Registry: "r"},
	} {
		got, err := parts.name()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%+v: %s, want %s", parts, got, want)
		}
	}
}

// world is a cluster with a claim, at the API server's place for the form of the requests alone.
type world struct {
	*standin.Server
	lock sync.Mutex
	pod  *corev1.Pod
	pods []corev1.Pod
	vmis []virtv1.VirtualMachineInstance
	// ends is the phase of the pod once its script has run.
	ends corev1.PodPhase
}

const (
	pods    = "/api/v1/namespaces/shop/pods"
	podPath = pods + "/libguestfs-tools-disk"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: standin.Start(t), ends: corev1.PodSucceeded}
	w.On("GET /apis/subresources.kubevirt.io/v1/guestfs", standin.JSON(map[string]string{"gsImage": "registry.example/guestfs:1"}))
	w.On("GET /api/v1/namespaces/shop/persistentvolumeclaims/disk", standin.JSON(claim(corev1.PersistentVolumeFilesystem)))
	w.On("GET /apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstances", func(rw http.ResponseWriter, r *http.Request) {
		standin.JSON(virtv1.VirtualMachineInstanceList{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstanceList"}, Items: w.vmis})(rw, r)
	})
	w.On("GET "+pods, w.list)
	w.On("POST "+pods, func(rw http.ResponseWriter, r *http.Request) {
		w.becomes(corev1.PodRunning)
		standin.JSON(w.pod)(rw, r)
	})
	w.On("DELETE "+podPath, standin.JSON(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}))
	return w
}

func (w *world) becomes(phase corev1.PodPhase) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.pod = &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "libguestfs-tools-disk"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: containerName}}}, Status: corev1.PodStatus{Phase: phase},
	}
	if phase == corev1.PodFailed {
		w.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}}}
	}
}

// list answers lists of pods, and holds watches.
func (w *world) list(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") != "" { // as an API server that cannot stream lists
		standin.Refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")(rw, r)
		return
	}
	if r.URL.Query().Get("watch") != "" {
		rw.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
		return
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"}}
	if r.URL.Query().Get("fieldSelector") == "" {
		list.Items = append(list.Items, w.pods...)
	}
	if w.pod != nil {
		list.Items = append(list.Items, *w.pod)
	}
	standin.JSON(list)(rw, r)
}

// run runs the verb with a pod that reads its script and answers it.
func (w *world) run(t *testing.T, script string, args ...string) (out, said string, end error) {
	t.Helper()
	o := &options{attach: func(_ context.Context, _ subresource.Cluster, _ *corev1.Pod, user streams) error {
		read, err := io.ReadAll(user.in)
		if err != nil {
			return err
		}
		if string(read) == "break" {
			return errors.New("the connection broke")
		}
		w.becomes(w.ends)
		_, err = user.out.Write([]byte("ran " + string(read)))
		return err
	}}
	command := o.command(w)
	command.SilenceErrors, command.SilenceUsage = true, true
	var printed, told bytes.Buffer
	command.SetIn(strings.NewReader(script))
	command.SetOut(&printed)
	command.SetErr(&told)
	command.SetArgs(args)
	end = command.ExecuteContext(t.Context())
	return printed.String(), told.String(), end
}

// deleted says whether the pod was asked to be.
func (w *world) deleted() bool {
	for _, line := range w.Seen() {
		if strings.HasPrefix(line, "DELETE "+podPath) {
			return true
		}
	}
	return false
}

func TestAScriptRunsInAPodThatIsDeleted(t *testing.T) {
	w := newWorld(t)
	out, said, err := w.run(t, "virt-filesystems", "disk")
	if err != nil || out != "ran virt-filesystems" || said != "Use image: registry.example/guestfs:1 \nThe PVC has been mounted at /disk \n" || !w.deleted() {
		t.Errorf("%v, printed %q, said %q, sent %q", err, out, said, w.Seen())
	}
	w = newWorld(t)
	w.ends = corev1.PodFailed
	if _, _, err := w.run(t, "exit 3", "disk"); err == nil || !strings.Contains(err.Error(), "the script ended with code 3") || !w.deleted() {
		t.Errorf("got %v", err)
	}
	w = newWorld(t)
	if _, _, err := w.run(t, "break", "disk"); err == nil || !strings.Contains(err.Error(), "the connection broke") || !w.deleted() {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	uses := corev1.PodSpec{Volumes: []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}}
	used := func(w *world) {
		w.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-web"}, Spec: uses}}
	}
	plugged := func(w *world) {
		w.vmis = []virtv1.VirtualMachineInstance{{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: virtv1.VirtualMachineInstanceSpec{
			Volumes: []virtv1.Volume{{Name: "a", VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "disk"}}}},
		}}}
	}
	for name, c := range map[string]struct {
		args string
		with func(*world)
		want string
	}{
		"a claim that is not there":   {args: "none", want: "the PVC none doesn't exist"},
		"a claim that a pod uses":     {args: "disk", with: used, want: "PVC disk is used by another pod: virt-launcher-web"},
		"a claim that a VM was given": {args: "disk", with: plugged, want: "PVC disk is used by another pod: that of the VM web"},
		"a uid of root":               {args: "disk --root --uid 1", want: "cannot set uid with root"},
		"a gid of root":               {args: "disk --root --gid 1", want: "cannot set gid id with root"},
		"an fsGroup of root":          {args: "disk --root --fsGroup 1", want: "cannot set fsGroup id with root"},
		"a gid alone":                 {args: "disk --gid 1", want: "gid requires the uid to be set"},
		"a uid that is no number":     {args: "disk --uid qemu", want: `--uid: "qemu" is no number`},
		"a policy that there is not":  {args: "disk --pull-policy Sometimes", want: "invalid pull policy: Sometimes"},
		"a VM that is not there":      {args: "disk --vm none", want: "reading VirtualMachine shop/none"},
		"an image that nobody knows of": {args: "disk", with: func(w *world) {
			w.On("GET /apis/subresources.kubevirt.io/v1/guestfs", standin.Refuse(http.StatusNotImplemented, "NotImplemented", "name one"))
		}, want: "could not get guestfs image info: name one"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gone := standin.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
			w.On("GET /api/v1/namespaces/shop/persistentvolumeclaims/none", gone)
			w.On("GET /apis/kubevirt.io/v1/namespaces/shop/virtualmachines/none", gone)
			if c.with != nil {
				c.with(w)
			}
			if _, _, err := w.run(t, "", strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) || w.pod != nil {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	w := newWorld(t)
	w.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "done"}, Spec: uses, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}}
	if _, _, err := w.run(t, "", "disk"); err != nil {
		t.Errorf("a pod that has ended keeps the claim: %v", err)
	}
}
