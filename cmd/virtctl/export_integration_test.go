//go:build integration

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/virtualmachineexport"
	"github.com/slipway-vm/slipway/importer/exportserver"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/vmexport"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// pier is a yard with what takes part in an export, each with the rights that it has in a cluster. The
// test plays storage, where a claim is a folder, and the kubelet of export servers, whose program runs here.
type pier struct {
	*yard
	dir string
	// place is where every export's server is; one runs at a time.
	place string
	// front is where virt-exportproxy is, certificate the file with whom clients of it are to trust.
	front, certificate string
}

// TestExports runs virtctl vmexport and virtctl memory-dump download against real programs.
func TestExports(t *testing.T) {
	p := startPier(t)
	for _, step := range []struct {
		name string
		test func(*testing.T, *pier)
	}{
		{"the disk of a stopped VM", ofMachine},
		{"its definition", ofDefinition},
		{"from outside the cluster", fromOutside},
		{"who may only look gets nothing", ofNobody},
		{"a running VM is waited for, and ends the server", ofRunning},
		{"a claim with files, by the token of the user", ofFiles},
		{"a snapshot", ofSnapshot},
		{"a dump of memory", ofDump},
		{"an export ends by itself", ends},
	} {
		t.Run(step.name, func(t *testing.T) { step.test(t, p) })
	}
}

func startPier(t *testing.T) *pier {
	t.Helper()
	ctrl.SetLogger(klog.Background())
	p := &pier{yard: &yard{Aggregating: apiserver.StartAggregating(t, "../../controllers/hyperconverged/components/crds")}, dir: t.TempDir(), place: freePlace(t), front: freePlace(t)}
	p.certificate = filepath.Join(p.dir, "tls.crt")
	p.Client = apiserver.Player(t, p.Config)
	for _, name := range []string{installed, shop} {
		must(t, p.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	p.install(t, freePlace(t))
	mgr, err := ctrl.NewManager(p.account(t, "virt-controller"), ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&networkingv1.Ingress{}: {Namespaces: map[string]cache.Config{installed: {}}}}},
	})
	must(t, err)
	must(t, virtualmachineexport.SetupWithManager(mgr, virtualmachineexport.Options{Image: "registry.local/slipway:test", Namespace: installed, Certificate: p.certificate}))
	background(t, "virt-controller", mgr.Start)
	p.runProxy(t)
	background(t, "kubelet", p.playExports)
	p.user, p.guest = kubeconfig(t, p.bind(t, "jane", "kubevirt.io:edit")), kubeconfig(t, p.bind(t, "joe", "kubevirt.io:view"))
	p.grantSecrets(t, "jane") // which Kubernetes' own role edit has, and kubevirt.io:edit alone has not
	c := clientOf(t, p.user)
	gomega.NewWithT(t).Eventually(func() error { return c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(shop)) }, bound, "200ms").
		Should(gomega.Succeed(), "the user's rights")
	return p
}

// grantSecrets lets a user read and make Secrets of the namespace.
func (p *pier) grantSecrets(t *testing.T, user string) {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "secrets"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create"}}},
	}
	must(t, p.Create(t.Context(), role))
	must(t, p.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "secrets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// exporter is the export server that runs, if there is one.
type exporter struct {
	stop  context.CancelFunc
	of    types.UID // its pod's
	ended chan error
}

// end ends the server.
func (e *exporter) end() error {
	if e.stop == nil {
		return nil
	}
	e.stop()
	e.stop, e.of = nil, ""
	return <-e.ended
}

// playExports is the kubelet, the storage and the garbage collector of the namespace: claims are bound, and the one
// export server that there is at a time runs for as long as its pod exists.
func (p *pier) playExports(ctx context.Context) error {
	e := &exporter{ended: make(chan error, 1)}
	for ctx.Err() == nil {
		err := p.bindClaims(ctx)
		if err == nil {
			err = p.playPods(ctx, e)
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // those have another try
			return ended(ctx, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return e.end()
}

func (p *pier) playPods(ctx context.Context, e *exporter) error {
	var pods corev1.PodList
	if err := p.List(ctx, &pods, client.InNamespace(shop), client.MatchingLabels{virtv1.AppLabel: exportv1.App}); err != nil {
		return err
	}
	runs := func(pod corev1.Pod) bool { return pod.UID == e.of }
	if e.stop != nil && !slices.ContainsFunc(pods.Items, runs) {
		if err := e.end(); err != nil {
			return err
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owned, err := p.hasOwner(ctx, pod)
		switch {
		case err != nil:
			return err
		case !owned:
			if err := p.Delete(ctx, pod); err != nil {
				return err
			}
		case e.stop == nil:
			options, err := p.options(ctx, pod)
			if err != nil {
				return err
			}
			var serving context.Context
			serving, e.stop = context.WithCancel(ctx)
			e.of = pod.UID
			go func() { e.ended <- exportserver.Run(serving, options) }()
		case pod.UID == e.of && pod.Status.Phase != corev1.PodRunning:
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if err := p.Status().Update(ctx, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pier) hasOwner(ctx context.Context, pod *corev1.Pod) (bool, error) {
	by := metav1.GetControllerOf(pod)
	export := &exportv1.VirtualMachineExport{}
	err := p.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: by.Name}, export)
	return err == nil && export.UID == by.UID, client.IgnoreNotFound(err)
}

// bindClaims gives every claim a volume: a folder, with what its VolumeSnapshot has.
func (p *pier) bindClaims(ctx context.Context) error {
	var claims corev1.PersistentVolumeClaimList
	if err := p.List(ctx, &claims, client.InNamespace(shop)); err != nil {
		return err
	}
	for n := range claims.Items {
		claim := &claims.Items[n]
		if claim.Status.Phase == corev1.ClaimBound {
			continue
		}
		if source := claim.Spec.DataSource; source != nil {
			if err := os.CopyFS(p.claim(claim.Name), os.DirFS(filepath.Join(p.dir, source.Name))); err != nil {
				return err
			}
		}
		claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.Resources.Requests
		if err := p.Status().Update(ctx, claim); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// claim is the folder of a claim.
func (p *pier) claim(name string) string { return filepath.Join(p.dir, "claims", name) }

// options are those by which pod runs the server, with what is mounted in it. It errs while a Secret is not there.
func (p *pier) options(ctx context.Context, pod *corev1.Pod) (exportserver.Options, error) {
	options := exportserver.Options{Volumes: exportserver.Volumes{Disks: map[string]string{}, Files: map[string]string{}}, Address: p.place}
	mounts := map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		at := filepath.Join(p.dir, string(pod.UID), volume.Name)
		if claim := volume.PersistentVolumeClaim; claim != nil {
			at = p.claim(claim.ClaimName)
		} else if err := p.mountSecret(ctx, volume.Secret.SecretName, at); err != nil {
			return options, err
		}
		mounts[volume.Name] = at
	}
	inside := map[string]string{}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		if !mount.ReadOnly {
			return options, fmt.Errorf("%s can be written to", mount.Name)
		}
		inside[mount.MountPath] = mounts[mount.Name]
	}
	for _, arg := range pod.Spec.Containers[0].Args {
		name, value, _ := strings.Cut(arg, "=")
		volume, path, _ := strings.Cut(value, "=")
		switch name {
		case "--disk":
			options.Disks[volume] = inside[path]
		case "--files":
			options.Files[volume] = inside[path]
		case "--manifest":
			options.Manifest = filepath.Join(inside[filepath.Dir(value)], filepath.Base(value))
		case "--header-secret":
			options.HeaderSecret = value
		case "--cert-dir":
			options.CertDir = inside[value]
		case "--token-file":
			options.TokenFile = filepath.Join(inside[filepath.Dir(value)], filepath.Base(value))
		case "--deadline":
			var err error
			if options.Deadline, err = time.Parse(time.RFC3339, value); err != nil {
				return options, err
			}
		}
	}
	return options, nil
}

func (p *pier) mountSecret(ctx context.Context, name, at string) error {
	secret := &corev1.Secret{}
	if err := p.Get(ctx, client.ObjectKey{Namespace: shop, Name: name}, secret); err != nil {
		return err
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	for key, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(at, key), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// fill makes a claim, with files.
func (p *pier) fill(t *testing.T, name string, annotations map[string]string, files map[string]string) {
	t.Helper()
	p.write(t, p.claim(name), files)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Annotations: annotations}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	must(t, p.Create(t.Context(), claim))
}

func (p *pier) write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	must(t, os.MkdirAll(folder, 0o700))
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
}

// disk is what disks hold in these tests.
var disk = strings.Repeat("a slipway is a ramp\n", 100_000)

// download runs virtctl, and returns what was downloaded.
func (p *pier) download(t *testing.T, line string) ([]byte, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "downloaded")
	out, err := p.virtctl(t, p.user, line+" --output="+file+" --service-url="+p.place+" --retry=30 --readiness-timeout=4m")
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	data, err := os.ReadFile(file)
	must(t, err)
	return data, out
}

func unpacked(t *testing.T, data []byte) []byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	must(t, err)
	all, err := io.ReadAll(zip)
	must(t, err)
	return all
}

func archived(t *testing.T, data []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	for archive := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		content, err := io.ReadAll(archive)
		must(t, err)
		files[header.Name] = string(content)
	}
}

func ofMachine(t *testing.T, p *pier) {
	p.fill(t, "root", nil, map[string]string{"disk.img": disk})
	must(t, p.Create(t.Context(), fixture.VM(shop, "web", fixture.Strategy(virtv1.RunStrategyHalted), fixture.Claim("root", "root"))))
	got, out := p.download(t, "vmexport download web-disks --vm=web")
	if string(unpacked(t, got)) != disk {
		t.Errorf("another disk, of %d bytes packed", len(got))
	}
	for _, want := range []string{"'shop/web-disks' created", "Download finished", "'shop/web-disks' deleted"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if got, _ := p.download(t, "vmexport download web-raw --vm=web --format=raw"); string(got) != disk {
		t.Errorf("another disk, of %d bytes", len(got))
	}
	export := &exportv1.VirtualMachineExport{}
	if err := p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "web-raw"}, export); !apierrors.IsNotFound(err) {
		t.Errorf("the export is there after all: %v", err)
	}
}

func ofDefinition(t *testing.T, p *pier) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	line := "vmexport download web-copy --vm=web --manifest --include-secret --output=" + file + " --service-url=" + p.place
	gomega.NewWithT(t).Eventually(func() error { // the server may not listen yet
		_, err := p.virtctl(t, p.user, line)
		return err
	}, bound, "500ms").Should(gomega.Succeed())
	export := p.phase(t, "web-copy", exportv1.Ready) // it stays, for the disks to be imported
	text, err := os.ReadFile(file)
	must(t, err)
	var kinds []string
	for document := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(document), &object.Object))
		object.SetNamespace(installed)
		if err := p.Create(t.Context(), object, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%v\n%s", err, document)
		}
		kinds = append(kinds, object.GetKind())
	}
	if want := []string{"ConfigMap", "VirtualMachine", "Secret"}; !slices.Equal(kinds, want) {
		t.Errorf("got %q:\n%s", kinds, text)
	}
	vm, secret := &virtv1.VirtualMachine{}, &corev1.Secret{}
	must(t, p.Get(t.Context(), client.ObjectKey{Namespace: installed, Name: "web"}, vm))
	must(t, p.Get(t.Context(), client.ObjectKey{Namespace: installed, Name: "header-secret-web-copy"}, secret))
	token := &corev1.Secret{}
	must(t, p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: *export.Status.TokenSecretRef}, token))
	if got := string(secret.Data["token"]); got != vmexport.Token+":"+string(token.Data["token"]) {
		t.Errorf("the header is %q", got)
	}
	source := vm.Spec.DataVolumeTemplates[0].Spec.Source.HTTP
	if source.URL != export.Status.Links.Internal.Volumes[0].Formats[1].Url || vm.Spec.Template.Spec.Volumes[0].DataVolume.Name != "root" {
		t.Errorf("the VM is %+v", vm.Spec)
	}
	if out, err := p.virtctl(t, p.user, "vmexport delete web-copy"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func ofNobody(t *testing.T, p *pier) {
	file := filepath.Join(t.TempDir(), "none")
	if out, err := p.virtctl(t, p.guest, "vmexport download nobodys --pvc=root --output="+file); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("who may only look makes an export: %v\n%s", err, out)
	}
	if out, err := p.virtctl(t, p.user, "vmexport create kept --pvc=root"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defer func() { _, _ = p.virtctl(t, p.user, "vmexport delete kept") }()
	p.phase(t, "kept", exportv1.Ready)
	if out, err := p.virtctl(t, p.guest, "vmexport download kept --output="+file); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("who may only look downloads: %v\n%s", err, out)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was downloaded: %v", err)
	}
	if out, err := p.virtctl(t, p.user, "vmexport download kept --vm=web --output="+file); err == nil || !strings.Contains(err.Error(), "already exists, of PersistentVolumeClaim root") {
		t.Errorf("an export of something else is taken: %v\n%s", err, out)
	}
}

// phase waits until an export is in phase.
func (p *pier) phase(t *testing.T, name string, want exportv1.VirtualMachineExportPhase) *exportv1.VirtualMachineExport {
	t.Helper()
	export := &exportv1.VirtualMachineExport{}
	gomega.NewWithT(t).Eventually(func(g gomega.Gomega) {
		*export = exportv1.VirtualMachineExport{} // what is read adds to what was
		g.Expect(p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: name}, export)).To(gomega.Succeed())
		g.Expect(export.Status).NotTo(gomega.BeNil())
		g.Expect(export.Status.Phase).To(gomega.Equal(want), "%+v", export.Status)
	}, bound, "100ms").Should(gomega.Succeed(), "VirtualMachineExport %s is %s", name, want)
	return export
}

func ofRunning(t *testing.T, p *pier) {
	if out, err := p.virtctl(t, p.user, "vmexport create served --vm=web"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first := p.phase(t, "served", exportv1.Ready).Status.Links.Internal.Cert
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"}}
	must(t, p.Create(t.Context(), vmi))
	export := p.phase(t, "served", exportv1.Pending)
	if export.Status.Links != nil || export.Status.Conditions[0].Reason != "InUse" {
		t.Errorf("a VM that runs is exported: %+v", export.Status)
	}
	gomega.NewWithT(t).Eventually(func() error {
		return p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: vmexport.ServerName("served")}, &corev1.Pod{})
	}, bound, "100ms").Should(gomega.Satisfy(apierrors.IsNotFound), "the server ends")
	for patience := 2 * time.Second; ; patience *= 2 { // until it is enough to see the export
		line := fmt.Sprintf("vmexport download served --output=%s --readiness-timeout=%s", filepath.Join(t.TempDir(), "none"), patience)
		out, err := p.virtctl(t, p.user, line)
		if err != nil && strings.Contains(err.Error(), "Virtual Machine shop/web is running") {
			break
		}
		if err == nil || patience > time.Minute {
			t.Fatalf("the user is not told: %v\n%s", err, out)
		}
	}
	must(t, p.Delete(t.Context(), vmi))
	if next := p.phase(t, "served", exportv1.Ready).Status.Links.Internal.Cert; next != first {
		t.Errorf("the next server has another certificate: %s, and before %s", next, first)
	}
	if _, out := p.download(t, "vmexport download served --delete-vme"); !strings.Contains(out, "'shop/served' deleted") {
		t.Errorf("the export stays:\n%s", out)
	}
}

func ofFiles(t *testing.T, p *pier) {
	p.fill(t, "files", nil, map[string]string{"a.txt": "a file", "b.txt": "another"})
	must(t, os.Symlink("/etc/passwd", filepath.Join(p.claim("files"), "link")))
	export := &exportv1.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "files"}}
	export.Spec.Source = corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "files"}
	export.Spec.TokenSecretRef = new("my-token")
	c := clientOf(t, p.user)
	must(t, c.Create(t.Context(), export))
	must(t, c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "my-token"}, StringData: map[string]string{"token": "chosen-by-the-user\n"}}))
	got, _ := p.download(t, "vmexport download files --format=raw")
	if files := archived(t, got); files["a.txt"] != "a file" || files["b.txt"] != "another" || files["link"] != "" {
		t.Errorf("got %q", files)
	}
	got, _ = p.download(t, "vmexport download files --delete-vme")
	if files := archived(t, unpacked(t, got)); len(files) != 3 {
		t.Errorf("got %q", files)
	}
}

func ofSnapshot(t *testing.T, p *pier) {
	p.write(t, filepath.Join(p.dir, "of-root"), map[string]string{"disk.img": "what it was"})
	volume := &csiv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "of-root"}}
	volume.Spec.Source.PersistentVolumeClaimName = new("root")
	must(t, p.Create(t.Context(), volume))
	volume.Status = &csiv1.VolumeSnapshotStatus{ReadyToUse: new(true), RestoreSize: new(resource.MustParse("2Gi"))}
	must(t, p.Status().Update(t.Context(), volume))
	vm := &virtv1.VirtualMachine{}
	must(t, p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "web"}, vm))
	claim := &corev1.PersistentVolumeClaim{}
	must(t, p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "root"}, claim))
	snapshot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "before"}}
	snapshot.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}
	must(t, p.Create(t.Context(), snapshot))
	content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "content"}}
	content.Spec.VirtualMachineSnapshotName = &snapshot.Name
	content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: shop}, Spec: vm.Spec}
	content.Spec.VolumeBackups = []snapshotv1.VolumeBackup{{
		VolumeName: "root", VolumeSnapshotName: new("of-root"),
		PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: claim.Spec},
	}}
	must(t, p.Create(t.Context(), content))
	content.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(true)}
	must(t, p.Status().Update(t.Context(), content))
	if out, err := p.virtctl(t, p.user, "vmexport create old --snapshot=before"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if export := p.phase(t, "old", exportv1.Pending); !strings.Contains(export.Status.Conditions[0].Message, "is not ready") {
		t.Errorf("the export of what is not ready: %+v", export.Status)
	}
	snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{ReadyToUse: new(true), VirtualMachineSnapshotContentName: &content.Name}
	must(t, p.Status().Update(t.Context(), snapshot))
	got, _ := p.download(t, "vmexport download old --volume=root --format=raw --delete-vme")
	if string(got) != "what it was" {
		t.Errorf("got %.40q", got)
	}
	must(t, p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "old-root"}, claim))
	if claim.Spec.DataSource.Name != "of-root" || claim.Spec.Resources.Requests.Storage().String() != "2Gi" || claim.OwnerReferences[0].Name != "old" {
		t.Errorf("the claim: %+v", claim)
	}
}

func ofDump(t *testing.T, p *pier) {
	p.fill(t, "dumps", map[string]string{virtv1.PVCMemoryDumpAnnotation: "web.dump"}, map[string]string{"web.dump": "memory", "older.dump": "older"})
	vm := &virtv1.VirtualMachine{}
	must(t, p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "web"}, vm))
	vm.Status.MemoryDumpRequest = &virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "dumps", Phase: virtv1.MemoryDumpCompleted, FileName: new("web.dump")}
	must(t, p.Status().Update(t.Context(), vm))
	if got, _ := p.download(t, "memory-dump download web --format=raw"); string(got) != "memory" {
		t.Errorf("got %.40q", got)
	}
	got, _ := p.download(t, "memory-dump download web")
	if files := archived(t, unpacked(t, got)); files["web.dump"] != "memory" || files["older.dump"] != "older" {
		t.Errorf("got %q", files)
	}
}

func ends(t *testing.T, p *pier) {
	if out, err := p.virtctl(t, p.user, "vmexport create short --pvc=files --ttl=2s"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	gomega.NewWithT(t).Eventually(func() error {
		return p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "short"}, &exportv1.VirtualMachineExport{})
	}, bound, "100ms").Should(gomega.Satisfy(apierrors.IsNotFound), "the export ends")
}
