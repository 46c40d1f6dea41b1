//go:build integration

package subresource_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/admission"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	"github.com/slipway-vm/slipway/controllers/subresource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/freeport"
)

const (
	installed = "slipway" // where virt-api believes to be installed
	node      = "node-1"
	token     = "the-token"
	group     = "/apis/subresources.kubevirt.io/v1"
	objects   = group + "/namespaces/default/"
	bound     = "5m" // how long a wait takes at the most, on a busy machine too
)

// cluster is an API server that hands the subresources on to virt-api.
type cluster struct {
	client.WithWatch
	*apiserver.Aggregating
	handler *nodeAgent
	address string // of virt-api itself
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	ctrl.SetLogger(klog.Background())
	c := &cluster{Aggregating: apiserver.StartAggregating(t, "../hyperconverged/components/crds")}
	var err error
	c.WithWatch, err = client.NewWithWatch(c.Config, client.Options{Scheme: scheme.New()})
	must(t, err)
	must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed}}))
	c.handler = startHandler(t)
	port := freeport.TCP(t)
	c.address = fmt.Sprintf("localhost:%d", port)
	c.install(t, port)
	c.runAPI(t, port)
	gomega.NewWithT(t).Eventually(func() string {
		code, body := c.ask(t, c.Config, http.MethodGet, group+"/version", "")
		return fmt.Sprint(code, body)
	}, bound, "200ms").Should(gomega.ContainSubstring("v0.0.0-test"), "the API server reaches virt-api")
	return c
}

// install creates what the operator does, but for the pods, and the webhooks, which are none of this.
func (c *cluster) install(t *testing.T, port int) {
	t.Helper()
	must(t, c.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: "virt-api"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}))
	for _, folder := range []string{"rbac", "virt-api"} {
		planned, err := render.Folder(components.Files(), folder, render.Values{Namespace: installed})
		must(t, err)
		for _, object := range planned {
			switch object.GetKind() {
			case "Deployment", "Service", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
				continue
			case "APIService":
				must(t, unstructured.SetNestedField(object.Object, int64(port), "spec", "service", "port"))
			}
			must(t, client.IgnoreAlreadyExists(c.Create(t.Context(), object)))
		}
	}
}

// runAPI runs virt-api with the rights that it has in a cluster.
func (c *cluster) runAPI(t *testing.T, port int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	account := c.User(t, "system:serviceaccount:"+installed+":virt-api", "system:serviceaccounts", "system:serviceaccounts:"+installed)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	options := admission.Options{Namespace: installed, Port: port, HealthAddress: "0", MetricsAddress: "0", Extend: func(mgr ctrl.Manager) error {
		return subresource.Setup(mgr, subresource.Options{
			Namespace: installed, Version: "v0.0.0-test", TokenFile: file, HandlerPort: c.handler.port, Certificates: admission.CertificatesSecret,
		})
	}}
	go func() { ended <- admission.Run(ctx, account, options) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("virt-api: %v", err)
		}
	})
}

// ask sends a request to the API server, and returns the answer.
func (c *cluster) ask(t *testing.T, as *rest.Config, method, path, body string) (code int, said string) {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(as)
	must(t, err)
	available(t, func() (int, string) {
		code, said = send(t, httpClient, method, strings.TrimSuffix(as.Host, "/")+path, body)
		return code, said
	})
	return code, said
}

// available asks until the API server takes virt-api for one that answers: it looks now and then, does not wait long, and hands nothing on
// for a while after that.
func available(t *testing.T, ask func() (int, string)) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() bool {
		code, said := ask()
		return code == http.StatusServiceUnavailable && strings.TrimSpace(said) == "service unavailable"
	}, bound, "200ms").Should(gomega.BeFalse(), "the API server takes virt-api for dead")
}

func send(t *testing.T, httpClient *http.Client, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewBufferString(body))
	must(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(content)
}

// socket opens a web socket through the API server.
func (c *cluster) socket(t *testing.T, path string) *websocket.Conn {
	t.Helper()
	config, err := rest.TLSConfigFor(c.Config)
	must(t, err)
	dialer := websocket.Dialer{TLSClientConfig: config, Subprotocols: []string{"plain.kubevirt.io"}}
	url := "wss" + strings.TrimPrefix(strings.TrimSuffix(c.Config.Host, "/"), "https") + path
	var socket *websocket.Conn
	var failed error
	said := ""
	available(t, func() (int, string) {
		var response *http.Response
		socket, response, failed = dialer.DialContext(t.Context(), url, nil)
		if failed == nil || response == nil {
			return 0, ""
		}
		content, _ := io.ReadAll(response.Body)
		said = string(content)
		return response.StatusCode, said
	})
	if failed != nil {
		t.Fatalf("opening %s: %v: %s", url, failed, said)
	}
	t.Cleanup(func() { _ = socket.Close() })
	if socket.Subprotocol() != "plain.kubevirt.io" {
		t.Errorf("the socket speaks %q", socket.Subprotocol())
	}
	return socket
}

// echoes checks that what is sent comes back.
func echoes(t *testing.T, socket *websocket.Conn, text string) {
	t.Helper()
	must(t, socket.WriteMessage(websocket.BinaryMessage, []byte(text)))
	_, got, err := socket.ReadMessage()
	if err != nil || string(got) != text {
		t.Errorf("got %q, %v, want %q", got, err, text)
	}
}

// nodeAgent plays virt-handler of one node.
type nodeAgent struct {
	port        int
	certificate []byte

	mu   sync.Mutex
	seen []string
}

func startHandler(t *testing.T) *nodeAgent {
	t.Helper()
	agent := &nodeAgent{}
	server := httptest.NewUnstartedServer(agent)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t, names.HandlerServerName)}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	agent.port = server.Listener.Addr().(*net.TCPAddr).Port
	agent.certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.TLS.Certificates[0].Certificate[0]})
	return agent
}

// ServeHTTP notes what was asked, echoes on web sockets, and refuses to freeze.
func (a *nodeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.seen = append(a.seen, strings.TrimSpace(fmt.Sprintf("%s %s %s %s%s", r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), r.Header.Get("X-Remote-User"), body)))
	a.mu.Unlock()
	switch {
	case websocket.IsWebSocketUpgrade(r):
		upgrader := websocket.Upgrader{Subprotocols: []string{"plain.kubevirt.io"}, CheckOrigin: func(*http.Request) bool { return true }}
		socket, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = socket.Close() }()
		for {
			kind, message, err := socket.ReadMessage()
			if err != nil || socket.WriteMessage(kind, message) != nil {
				return
			}
		}
	case strings.HasSuffix(r.URL.Path, "/freeze"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict, Message: "it is frozen already"})
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(virtv1.VirtualMachineInstanceGuestAgentInfo{Hostname: "web"})
	}
}

// asked are the requests that came since the last call.
func (a *nodeAgent) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := slices.Clone(a.seen)
	a.seen = nil
	return seen
}

// announce makes the node and virt-handler's pod on it.
func (c *cluster) announce(t *testing.T) {
	t.Helper()
	must(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node, Annotations: map[string]string{names.HandlerCertificateAnnotation: string(c.handler.certificate)},
	}}))
	c.pod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: installed, Name: "virt-handler", Labels: map[string]string{virtv1.AppLabel: "virt-handler"},
	}})
}

// pod makes a pod that runs on the node, at this machine's own address.
func (c *cluster) pod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "compute", Image: "none"}}}
	must(t, c.Create(t.Context(), pod))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}}
	must(t, c.Status().Update(t.Context(), pod))
}

// vm makes a VM.
func (c *cluster) vm(t *testing.T, name string, strategy virtv1.VirtualMachineRunStrategy) *virtv1.VirtualMachine {
	t.Helper()
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	vm.Spec.RunStrategy = &strategy
	vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{}
	must(t, c.Create(t.Context(), vm))
	vm.Status.Created = true
	must(t, c.Status().Update(t.Context(), vm))
	return vm
}

// vmi makes the VMI of vm, which runs on the node, with its launcher pod.
func (c *cluster) vmi(t *testing.T, vm *virtv1.VirtualMachine) *virtv1.VirtualMachineInstance {
	t.Helper()
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: vm.Name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)},
	}}
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(30))
	vmi.Spec.Networks = []virtv1.Network{*virtv1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []virtv1.Interface{*virtv1.DefaultMasqueradeNetworkInterface()}
	vmi.Status = virtv1.VirtualMachineInstanceStatus{Phase: virtv1.Running, NodeName: node, Conditions: []virtv1.VirtualMachineInstanceCondition{
		{Type: virtv1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue},
	}}
	must(t, c.Create(t.Context(), vmi))
	c.pod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "virt-launcher-" + vm.Name, Labels: map[string]string{virtv1.CreatedByLabel: string(vmi.UID)},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, virtv1.VirtualMachineInstanceGroupVersionKind)},
	}})
	return vmi
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
