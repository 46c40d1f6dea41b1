//go:build integration

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	cdiupload "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/controllers/admission"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	"github.com/slipway-vm/slipway/controllers/populator"
	"github.com/slipway-vm/slipway/controllers/subresource"
	"github.com/slipway-vm/slipway/importer/uploadproxy"
	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

const (
	installed  = "slipway"
	uploadSize = 16 << 20
	bound      = "5m"
)

// yard is an API server with all that takes part in an upload, each with the rights that it has in a
// cluster. The test plays kubelet and storage: the pod's program runs here.
type yard struct {
	client.Client
	*apiserver.Aggregating
	proxy  string // where cdi-uploadproxy is
	server string // where the upload server is
	user   string // kubeconfig of somebody who may edit the namespace shop
	guest  string // kubeconfig of somebody who may only look
	volume string // what upload servers write to
}

// TestImageUpload runs virtctl image-upload against real programs.
func TestImageUpload(t *testing.T) {
	y := startYard(t)
	raw := bytes.Repeat([]byte("a slipway is a ramp\n"), 100_000)
	raw = append(raw, make([]byte, uploadSize-len(raw))...)
	sum, err := digest.Of(t.Context(), bytes.NewReader(raw), int64(len(raw)), 2)
	must(t, err)
	image := filepath.Join(t.TempDir(), "disk.qcow2")
	must(t, os.WriteFile(image+".raw", raw, 0o600))
	need.Program(t, "qemu-img", "qemu-utils")
	if out, err := exec.Command("qemu-img", "convert", "-f", "raw", "-O", "qcow2", image+".raw", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line := fmt.Sprintf("image-upload dv disk --size=16Mi --storage-class=fast --access-mode=ReadWriteOnce --image-path=%s --uploadproxy-url=%s --default-preference=debian", image, y.proxy)

	if out, err := y.virtctl(t, y.guest, line); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("somebody who may only look sends an image: %v\n%s", err, out)
	}
	out, err := y.virtctl(t, y.user, line)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"DataVolume shop/disk created", "Waiting for PVC disk upload pod to be ready...", "Uploading data to " + y.proxy,
		"100 %", "Processing completed successfully", "Uploading " + image + " completed successfully",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	claim := &corev1.PersistentVolumeClaim{}
	must(t, y.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "disk"}, claim))
	if claim.Annotations[names.AnnotationDigest] != sum || claim.Labels["instancetype.kubevirt.io/default-preference"] != "debian" {
		t.Errorf("the claim is %v %v, want digest %s", claim.Annotations, claim.Labels, sum)
	}
	if written, err := os.ReadFile(filepath.Join(y.volume, "disk.img")); err != nil || !bytes.Equal(written, raw) {
		t.Errorf("the disk is another one: %v", err)
	}
	if _, err := y.virtctl(t, y.user, line); err == nil || !strings.Contains(err.Error(), "already successfully") {
		t.Errorf("the second time: %v", err)
	}
	y.refusesTokens(t)
	y.takesArchive(t)
}

// takesArchive sends files to a claim that no DataVolume has.
func (y *yard) takesArchive(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "ramp"), []byte("a slipway is a ramp\n"), 0o600))
	if out, err := exec.Command("tar", "-C", dir, "-czf", filepath.Join(dir, "files.tar.gz"), "ramp").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line := fmt.Sprintf("image-upload pvc files --size=16Mi --storage-class=fast --archive-path=%s --uploadproxy-url=%s", filepath.Join(dir, "files.tar.gz"), y.proxy)
	out, err := y.virtctl(t, y.user, line)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"PersistentVolumeClaim shop/files created", "Waiting for PVC files upload pod to be ready...", "files.tar.gz completed successfully"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if written, err := os.ReadFile(filepath.Join(y.volume, "ramp")); err != nil || string(written) != "a slipway is a ramp\n" {
		t.Errorf("the file is another one: %q, %v", written, err)
	}
	claim := &corev1.PersistentVolumeClaim{}
	must(t, y.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "files"}, claim))
	if population.Awaited(claim) || len(claim.OwnerReferences) > 0 || claim.Annotations["cdi.kubevirt.io/storage.contentType"] != "archive" {
		t.Errorf("the claim is %+v", claim.ObjectMeta)
	}
	if _, err := y.virtctl(t, y.user, line); err == nil || !strings.Contains(err.Error(), "already successfully") {
		t.Errorf("the second time: %v", err)
	}
}

// refusesTokens asks for tokens that are not given, and shows one where it is of no use any more.
func (y *yard) refusesTokens(t *testing.T) {
	t.Helper()
	c := clientOf(t, y.user)
	ask := func(as client.Client, namespace, claim string) (string, error) {
		request := &cdiupload.UploadTokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "t"}, Spec: cdiupload.UploadTokenRequestSpec{PvcName: claim}}
		err := as.Create(t.Context(), request)
		return request.Status.Token, err
	}
	if _, err := ask(c, installed, "disk"); !apierrors.IsForbidden(err) {
		t.Errorf("a token for another namespace: %v", err)
	}
	if _, err := ask(clientOf(t, y.guest), shop, "disk"); !apierrors.IsForbidden(err) {
		t.Errorf("a token for who may only look: %v", err)
	}
	for _, name := range []string{"", "Not a name", "../x"} {
		if _, err := ask(c, shop, name); !apierrors.IsBadRequest(err) {
			t.Errorf("a token for claim %q: %v", name, err)
		}
	}
	token, err := ask(c, shop, "disk")
	must(t, err)
	insecure, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	must(t, err)
	for token, want := range map[string]int{token: http.StatusServiceUnavailable, token[:len(token)-1]: http.StatusUnauthorized, "": http.StatusBadRequest} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, y.proxy+"/v1beta1/upload", strings.NewReader("x"))
		must(t, err)
		request.Header.Set("Authorization", strings.TrimSpace("Bearer "+token))
		response, err := insecure.Do(request)
		must(t, err)
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("token %.10s…: %s, want %d", token, response.Status, want)
		}
	}
}

func startYard(t *testing.T) *yard {
	t.Helper()
	ctrl.SetLogger(klog.Background())
	y := &yard{Aggregating: apiserver.StartAggregating(t, "../../controllers/hyperconverged/components/crds"), server: freePlace(t), volume: t.TempDir()}
	y.Client = apiserver.Player(t, y.Config)
	for _, name := range []string{installed, shop} {
		must(t, y.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	must(t, y.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.example.com"}))
	must(t, y.Create(t.Context(), &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: names.KubeVirtName}})) // by which the installation is found
	api, proxy := freePlace(t), freePlace(t)
	y.proxy = "https://" + proxy
	y.install(t, api)
	y.runAPI(t, api)
	y.runController(t)
	background(t, "cdi-uploadproxy", func(ctx context.Context) error {
		return uploadproxy.Run(ctx, y.account(t, "cdi-uploadproxy"), uploadproxy.Options{
			Namespace: installed, Address: proxy, HealthAddress: "0", MetricsAddress: "0",
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if !strings.HasPrefix(address, "cdi-upload-") || !strings.HasSuffix(address, ".shop.svc:443") {
					return nil, fmt.Errorf("there is no %s", address)
				}
				return (&net.Dialer{}).DialContext(ctx, network, y.server)
			},
		})
	})
	background(t, "kubelet", func(ctx context.Context) error { return y.playKubelet(ctx, t.TempDir()) })
	y.user, y.guest = kubeconfig(t, y.bind(t, "jane", "kubevirt.io:edit")), kubeconfig(t, y.bind(t, "joe", "kubevirt.io:view"))
	for _, role := range []string{"system:aggregate-to-edit", "system:aggregate-to-view"} { // Kubernetes' own of edit
		must(t, y.give(t, "jane", role))
	}
	c := clientOf(t, y.user)
	gomega.NewWithT(t).Eventually(func() error {
		return c.Create(t.Context(), &cdiupload.UploadTokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "t"}, Spec: cdiupload.UploadTokenRequestSpec{PvcName: "disk"}})
	}, bound, "200ms").Should(gomega.Succeed(), "virt-api gives out tokens")
	return y
}

// install creates what the operator does, but for pods and webhooks.
func (y *yard) install(t *testing.T, api string) {
	t.Helper()
	_, port, err := net.SplitHostPort(api)
	must(t, err)
	must(t, y.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: "virt-api"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}))
	for _, folder := range []string{"rbac", "virt-api", "virt-controller", "cdi-uploadproxy", "virt-exportproxy"} {
		planned, err := render.Folder(components.Files(), folder, render.Values{Namespace: installed})
		must(t, err)
		for _, object := range planned {
			switch object.GetKind() {
			case "Deployment", "Service", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
				continue
			case "APIService":
				var number int64
				_, err := fmt.Sscan(port, &number)
				must(t, err)
				must(t, unstructured.SetNestedField(object.Object, number, "spec", "service", "port"))
			}
			must(t, client.IgnoreAlreadyExists(y.Create(t.Context(), object)))
		}
	}
}

// account is that of a component.
func (y *yard) account(t *testing.T, name string) *rest.Config {
	t.Helper()
	return y.User(t, "system:serviceaccount:"+installed+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+installed, "system:authenticated")
}

// bind gives a user a role in the namespace of the test.
func (y *yard) bind(t *testing.T, name, role string) *rest.Config {
	t.Helper()
	must(t, y.give(t, name, role))
	return y.User(t, name, "system:authenticated")
}

// give lets user name have a role in the namespace of the test.
func (y *yard) give(t *testing.T, name, role string) error {
	t.Helper()
	return y.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"namespace": shop, "generateName": name + "-"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}},
	}})
}

func (y *yard) runAPI(t *testing.T, address string) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	var number int
	_, err = fmt.Sscan(port, &number)
	must(t, err)
	options := admission.Options{Namespace: installed, Port: number, HealthAddress: "0", MetricsAddress: "0", Extend: func(mgr ctrl.Manager) error {
		return subresource.Setup(mgr, subresource.Options{Namespace: installed, Version: "v0.0.0-test"})
	}}
	account := y.account(t, "virt-api")
	background(t, "virt-api", func(ctx context.Context) error { return admission.Run(ctx, account, options) })
}

func (y *yard) runController(t *testing.T) {
	t.Helper()
	mgr, err := ctrl.NewManager(y.account(t, "virt-controller"), ctrl.Options{Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}})
	must(t, err)
	must(t, datavolume.SetupWithManager(mgr, datavolume.Options{ImporterImage: "registry.local/slipway:test", Namespace: installed}))
	must(t, populator.SetupWithManager(mgr))
	background(t, "virt-controller", mgr.Start)
}

// virtctl runs the program with the words of line.
func (y *yard) virtctl(t *testing.T, kubeconfig, line string) (string, error) {
	t.Helper()
	root := newRootCommand("virtctl")
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(strings.Fields(line), "--kubeconfig", kubeconfig))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

func clientOf(t *testing.T, kubeconfig string) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	must(t, err)
	return c
}

// background runs a component until the test ends, and fails it when the component does. One that ends because the API server
// does not know its role yet is started anew, as its pod would be.
func background(t *testing.T, name string, start func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := start(ctx)
		for apierrors.IsForbidden(err) && ctx.Err() == nil {
			<-time.After(50 * time.Millisecond)
			err = start(ctx)
		}
		done <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	})
}

func freePlace(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	must(t, err)
	defer listener.Close()
	return fmt.Sprintf("localhost:%d", listener.Addr().(*net.TCPAddr).Port)
}
