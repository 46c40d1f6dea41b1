//go:build integration

package subresource_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestSubresources asks a real API server, which hands the requests on to virt-api.
func TestSubresources(t *testing.T) {
	c := startCluster(t)
	for _, stage := range []struct {
		name string
		test func(*testing.T, *cluster)
	}{
		{"clients discover the group", discovers},
		{"clients are told of each verb what it takes and gives", describesVerbs},
		{"kubectl explains and validates requests for tokens", explainsTokens},
		{"roles say who may", rolesSayWhoMay},
		{"virt-api asks for itself whether somebody may", asksForItself},
		{"a VM is started by its spec or by its status", starts},
		{"a VM is stopped", stops},
		{"a stop that is refused changes nothing", refusesStops},
		{"a VM is restarted", restarts},
		{"an attempt changes nothing", tries},
		{"a stopped VM is renamed", renames},
		{"the memory of a guest is dumped", dumps},
		{"a VM is shown with what its instance type says", expands},
		{"a VM is shown with what it is made of", graphs},
		{"a template is filled in, and a VM made of it", processes},
		{"virt-handler answers for its node", handsOn},
		{"a console is a web socket to virt-handler", consoles},
		{"a port is a web socket to the guest", forwards},
		{"the former version answers, too", formerVersion},
		{"profiles of the components are recorded and collected", profiles},
		{"what is not built says so", saysWhatIsMissing},
		{"the API server always knows whom to trust", keepsTrust},
	} {
		t.Run(stage.name, func(t *testing.T) { stage.test(t, c) })
	}
}

func discovers(t *testing.T, c *cluster) {
	t.Helper()
	asked, err := discovery.NewDiscoveryClientForConfig(c.Config)
	must(t, err)
	gomega.NewWithT(t).Eventually(func() (bool, error) {
		_, lists, err := asked.ServerGroupsAndResources()
		return slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
			return list.GroupVersion == "subresources.kubevirt.io/v1" && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
				return r.Name == "virtualmachines/start" && r.Namespaced
			})
		}), err
	}, bound, "500ms").Should(gomega.BeTrue(), "virtualmachines/start is discovered")
	gomega.NewWithT(t).Eventually(func() string {
		_, body := c.ask(t, c.Config, http.MethodGet, "/openapi/v3", "")
		return body
	}, bound, "500ms").Should(gomega.ContainSubstring("apis/subresources.kubevirt.io/v1"), "the API server takes the description over")
}

// may binds a role of the installation to a user, and returns how he reaches the API server, once that knows that he may
// do something to VMs by it.
func (c *cluster) may(t *testing.T, user, role, verb, subresource string) *rest.Config {
	t.Helper()
	must(t, c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
	gomega.NewWithT(t).Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "default", Verb: verb, Group: "subresources.kubevirt.io", Resource: "virtualmachines", Subresource: subresource,
		}}}
		err := c.Create(t.Context(), review)
		return review.Status.Allowed, err
	}, bound, "50ms").Should(gomega.BeTrue(), "the API server knows the rights of %s", user)
	return c.User(t, user)
}

func rolesSayWhoMay(t *testing.T, c *cluster) {
	t.Helper()
	c.vm(t, "roles", virtv1.RunStrategyHalted)
	viewer, editor := c.may(t, "viewer", "kubevirt.io:view", "get", "expand-spec"), c.may(t, "editor", "kubevirt.io:edit", "update", "start")
	c.wants(t, viewer, http.MethodPut, "virtualmachines/roles/start", "", http.StatusForbidden, `cannot update resource \"virtualmachines/start\"`)
	c.wants(t, viewer, http.MethodGet, "virtualmachines/roles/expand-spec", "", http.StatusOK, `"name":"roles"`)
	c.wants(t, editor, http.MethodPut, "virtualmachines/roles/start", "", http.StatusAccepted, "")
}

// wants asks and compares the answer.
func (c *cluster) wants(t *testing.T, as *rest.Config, method, path, body string, wantCode int, wantWords string) {
	t.Helper()
	code, said := c.ask(t, as, method, objects+path, body)
	if code != wantCode || !strings.Contains(said, wantWords) {
		t.Errorf("%s %s %s: got %d %s, want %d with %q", method, path, body, code, said, wantCode, wantWords)
	}
}

func asksForItself(t *testing.T, c *cluster) {
	t.Helper()
	c.vm(t, "alone", virtv1.RunStrategyHalted)
	path := "https://" + c.address + objects + "virtualmachines/alone/start"
	as := func(certificates ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, Certificates: certificates, //nolint:gosec // who asks is what is tested
		}}}
	}
	for name, ask := range map[string]struct {
		client    *http.Client
		user      string
		wantCode  int
		wantWords string
	}{
		"somebody without a certificate":  {as(), "editor", http.StatusUnauthorized, "without the front proxy's certificate"},
		"somebody with one of his own":    {as(selfSigned(t, "front-proxy-client")), "editor", http.StatusUnauthorized, "verifying the certificate"},
		"the front proxy for a stranger":  {as(c.Proxy), "stranger", http.StatusForbidden, `User \"stranger\" cannot update resource \"virtualmachines/start\"`},
		"the front proxy for who may not": {as(c.Proxy), "viewer", http.StatusForbidden, `User \"viewer\" cannot update`},
		"the front proxy for who may":     {as(c.Proxy), "editor", http.StatusAccepted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, said := send(t, ask.client, http.MethodPut, path, "", "X-Remote-User", ask.user)
			if code != ask.wantCode || !strings.Contains(said, ask.wantWords) {
				t.Errorf("got %d %s, want %d with %q", code, said, ask.wantCode, ask.wantWords)
			}
		})
	}
}

// stored is what the API server has of a VM: how it is to run, and what was asked.
func (c *cluster) stored(t *testing.T, name string) string {
	t.Helper()
	vm := &virtv1.VirtualMachine{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, vm))
	text := ""
	if vm.Spec.RunStrategy != nil {
		text = string(*vm.Spec.RunStrategy)
	} else if vm.Spec.Running != nil {
		text = fmt.Sprint("running ", *vm.Spec.Running)
	}
	for _, request := range vm.Status.StateChangeRequests {
		text += fmt.Sprint(" ", request.Action)
		if request.UID != nil {
			text += " of it"
		}
		if len(request.Data) > 0 {
			text += fmt.Sprint(" ", request.Data)
		}
	}
	return text
}

func (c *cluster) wantStored(t *testing.T, name, want string) {
	t.Helper()
	if got := c.stored(t, name); got != want {
		t.Errorf("VM %s is %q, want %q", name, got, want)
	}
}

func starts(t *testing.T, c *cluster) {
	t.Helper()
	put := func(path, body string, wantCode int, wantWords string) {
		t.Helper()
		c.wants(t, c.Config, http.MethodPut, "virtualmachines/"+path, body, wantCode, wantWords)
	}
	c.vm(t, "halted", virtv1.RunStrategyHalted)
	put("halted/start", "", http.StatusAccepted, "")
	c.wantStored(t, "halted", "Always")
	put("halted/start", "", http.StatusConflict, "Always does not support manual start requests")

	c.vm(t, "paused", virtv1.RunStrategyHalted)
	put("paused/start", `{"paused":true}`, http.StatusAccepted, "")
	c.wantStored(t, "paused", "Halted Start map[paused:true]")

	old := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old"}}
	old.Spec.Running, old.Spec.Template = new(false), &virtv1.VirtualMachineInstanceTemplateSpec{}
	must(t, c.Create(t.Context(), old))
	put("old/start", "", http.StatusAccepted, "")
	c.wantStored(t, "old", "running true")

	c.vm(t, "manual", virtv1.RunStrategyManual)
	put("manual/start", "", http.StatusAccepted, "")
	c.wantStored(t, "manual", "Manual Start")
	put("manual/start", "", http.StatusInternalServerError, "unable to complete request: stop/start already underway")
	put("nowhere/start", "", http.StatusNotFound, `virtualmachine.kubevirt.io \"nowhere\" not found`)
	put("manual/start", "{", http.StatusBadRequest, "Can not unmarshal Request body to struct")
}

func stops(t *testing.T, c *cluster) {
	t.Helper()
	c.announce(t)
	put := func(path, body string, wantCode int, wantWords string) {
		t.Helper()
		c.wants(t, c.Config, http.MethodPut, "virtualmachines/"+path, body, wantCode, wantWords)
	}
	c.vm(t, "always", virtv1.RunStrategyAlways)
	put("always/stop", "", http.StatusAccepted, "")
	c.wantStored(t, "always", "Halted")
	put("always/stop", "", http.StatusConflict, "VM is not running")

	vmi := c.vmi(t, c.vm(t, "rerun", virtv1.RunStrategyRerunOnFailure))
	put("rerun/start", "", http.StatusConflict, "VM is already running")
	put("rerun/stop", `{"gracePeriod":5}`, http.StatusAccepted, "")
	c.wantStored(t, "rerun", "RerunOnFailure Stop of it")
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
	if got := vmi.Spec.TerminationGracePeriodSeconds; got == nil || *got != 5 {
		t.Errorf("the VMI has a grace period of %v, want 5", got)
	}

	c.vmi(t, c.vm(t, "stopping", virtv1.RunStrategyHalted))
	put("stopping/stop", "", http.StatusConflict, "Halted only supports manual stop requests with a shorter graceperiod")
	put("stopping/stop", `{"gracePeriod":60}`, http.StatusConflict, "shorter graceperiod")
	put("stopping/stop", `{"gracePeriod":0}`, http.StatusAccepted, "")
	c.wantStored(t, "stopping", "Halted Stop of it")
}

func restarts(t *testing.T, c *cluster) {
	t.Helper()
	put := func(path, body string, wantCode int, wantWords string) {
		t.Helper()
		c.wants(t, c.Config, http.MethodPut, "virtualmachines/"+path, body, wantCode, wantWords)
	}
	vm := c.vm(t, "restarted", virtv1.RunStrategyAlways)
	put("restarted/restart", "", http.StatusConflict, "VM is not running: Halted")
	c.vmi(t, vm)
	put("restarted/restart", `{"gracePeriodSeconds":3}`, http.StatusBadRequest, "only gracePeriod=0 is supported for now")
	put("restarted/restart", `{"gracePeriodSeconds":0}`, http.StatusAccepted, "")
	c.wantStored(t, "restarted", "Always Stop of it Start")
	pod := &corev1.Pod{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "virt-launcher-restarted"}, pod))
	if pod.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds != 1 {
		t.Errorf("the pod is left to itself: %+v", pod.ObjectMeta)
	}
	c.vm(t, "once", virtv1.RunStrategyOnce)
	put("once/restart", "", http.StatusConflict, "RunStategy Once does not support manual restart requests")
}

func tries(t *testing.T, c *cluster) {
	t.Helper()
	c.vmi(t, c.vm(t, "tried", virtv1.RunStrategyAlways))
	for _, verb := range []string{"stop", "restart"} {
		c.wants(t, c.Config, http.MethodPut, "virtualmachines/tried/"+verb, `{"dryRun":["All"],"gracePeriodSeconds":0}`, http.StatusAccepted, "")
		c.wantStored(t, "tried", "Always")
	}
	c.handler.asked()
	c.wants(t, c.Config, http.MethodPut, "virtualmachineinstances/tried/pause", `{"dryRun":["All"]}`, http.StatusOK, "")
	c.wants(t, c.Config, http.MethodPut, "virtualmachineinstances/tried/pause", `{"dryRun":["Some"]}`, http.StatusBadRequest, "invalid dryRun directive")
	if asked := c.handler.asked(); len(asked) > 0 {
		t.Errorf("virt-handler was asked %q", asked)
	}
}

func expands(t *testing.T, c *cluster) {
	t.Helper()
	it := &v1beta1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pair"}}
	it.Spec.CPU.Guest = 2
	it.Spec.Memory.Guest.Set(1 << 30)
	must(t, c.Create(t.Context(), it))
	vm := c.vm(t, "typed", virtv1.RunStrategyHalted)
	vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{Kind: "VirtualMachineInstancetype", Name: "pair"}
	must(t, c.Update(t.Context(), vm))
	_, body := c.ask(t, c.Config, http.MethodGet, objects+"virtualmachines/typed/expand-spec", "")
	sent, err := json.Marshal(map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": map[string]any{"name": "sent"},
		"spec": map[string]any{"runStrategy": "Halted", "instancetype": vm.Spec.Instancetype, "template": map[string]any{"spec": map[string]any{"domain": map[string]any{}}}}})
	must(t, err)
	code, other := c.ask(t, c.Config, http.MethodPut, objects+"expand-vm-spec", string(sent))
	for _, answer := range []string{body, other} {
		expanded := &virtv1.VirtualMachine{}
		must(t, json.Unmarshal([]byte(answer), expanded))
		if expanded.Kind != "VirtualMachine" || expanded.Spec.Instancetype != nil || expanded.Spec.Template.Spec.Domain.CPU.Sockets != 2 {
			t.Errorf("%d %s", code, answer)
		}
	}
	c.wants(t, c.Config, http.MethodPut, "expand-vm-spec", `{"spec":{"template":{"spec":{"dom":1}}}}`, http.StatusBadRequest, "spec.template.spec.dom")
	c.wants(t, c.Config, http.MethodPut, "expand-vm-spec", "", http.StatusBadRequest, "empty request body")
}

// graphs follows expands, which makes the VM "typed".
func graphs(t *testing.T, c *cluster) {
	t.Helper()
	const all, some = "virtualmachines/typed/objectgraph", `{"includeOptionalNodes":false}`
	c.wants(t, c.Config, http.MethodGet, all, "", http.StatusOK, `"kind":"VirtualMachineInstancetype","name":"pair"`)
	_, body := c.ask(t, c.Config, http.MethodGet, objects+all, some)
	root := &virtv1.ObjectGraphNode{}
	must(t, json.Unmarshal([]byte(body), root))
	if root.ObjectReference.Name != "typed" || len(root.Children) != 0 {
		t.Errorf("without what is optional there is %s", body)
	}
	c.wants(t, c.Config, http.MethodGet, all, `{"labelSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}`, http.StatusBadRequest, "labelSelector")
	c.wants(t, c.Config, http.MethodGet, "virtualmachines/nowhere/objectgraph", "", http.StatusNotFound, "nowhere")
	c.wants(t, c.Config, http.MethodGet, "virtualmachineinstances/typed/objectgraph", "", http.StatusNotFound, "typed")
	c.vmi(t, c.vm(t, "seen", virtv1.RunStrategyAlways))
	c.wants(t, c.Config, http.MethodGet, "virtualmachines/seen/objectgraph", "", http.StatusOK, `"kind":"VirtualMachineInstance","name":"seen"`)
	c.wants(t, c.Config, http.MethodGet, "virtualmachineinstances/seen/objectgraph", "", http.StatusOK, `"kind":"VirtualMachineInstance","name":"seen"`)
}

func handsOn(t *testing.T, c *cluster) {
	t.Helper()
	c.vmi(t, c.vm(t, "web", virtv1.RunStrategyAlways))
	c.handler.asked()
	const path = "virtualmachineinstances/web/"
	c.wants(t, c.Config, http.MethodPut, path+"pause", "{}", http.StatusOK, "")
	c.wants(t, c.Config, http.MethodPut, path+"unpause", "", http.StatusConflict, "VMI is not paused")
	c.wants(t, c.Config, http.MethodPut, path+"freeze", `{"unfreezeTimeout":"1m"}`, http.StatusConflict, "it is frozen already")
	c.wants(t, c.Config, http.MethodGet, path+"guestosinfo", "", http.StatusOK, `"hostname":"web"`)
	c.wants(t, c.Config, http.MethodGet, path+"vnc/screenshot?moveCursor=true", "", http.StatusOK, "")
	c.wants(t, c.Config, http.MethodGet, "virtualmachineinstances/nowhere/guestosinfo", "", http.StatusNotFound, `virtualmachineinstance.kubevirt.io \"nowhere\" not found`)
	const at = "/v1/namespaces/default/virtualmachineinstances/web/"
	want := []string{
		"PUT " + at + "pause Bearer the-token",
		"PUT " + at + `freeze Bearer the-token {"unfreezeTimeout":"1m"}`,
		"GET " + at + "guestosinfo Bearer the-token",
		"GET " + at + "vnc/screenshot?moveCursor=true Bearer the-token",
	}
	if got := c.handler.asked(); !slices.Equal(got, want) {
		t.Errorf("virt-handler was asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func consoles(t *testing.T, c *cluster) {
	t.Helper()
	echoes(t, c.socket(t, objects+"virtualmachineinstances/web/console"), "login:")
	echoes(t, c.socket(t, objects+"virtualmachineinstances/web/vnc"), "RFB 003.008\n")
	c.wants(t, c.Config, http.MethodGet, "virtualmachineinstances/web/usbredir", "", http.StatusConflict, "Not configured with USB Redirection")
	guestSockets(t, c)
}

// guestSockets are those by VSOCK: by TLS unless a client wants none.
func guestSockets(t *testing.T, c *cluster) {
	t.Helper()
	const path = "virtualmachineinstances/web/vsock"
	c.wants(t, c.Config, http.MethodGet, path, "", http.StatusBadRequest, "is not a number")
	c.wants(t, c.Config, http.MethodGet, path+"?port=4294967295", "", http.StatusBadRequest, "is not a number")
	c.wants(t, c.Config, http.MethodGet, path+"?port=22&tls=perhaps", "", http.StatusBadRequest, "tls")
	c.wants(t, c.Config, http.MethodGet, path+"?port=22", "", http.StatusBadRequest, "VSOCK is not attached.")
	vmi := &virtv1.VirtualMachineInstance{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, vmi))
	vmi.Spec.Domain.Devices.AutoattachVSOCK = new(true)
	must(t, c.Update(t.Context(), vmi))
	c.handler.asked()
	echoes(t, c.socket(t, objects+path+"?port=22"), "SSH-2.0-client\r\n")
	echoes(t, c.socket(t, objects+path+"?port=818&tls=false"), "hello")
	const at = "GET /v1/namespaces/default/virtualmachineinstances/web/vsock?port="
	want := []string{at + "22&tls=true Bearer the-token", at + "818&tls=false Bearer the-token"}
	if got := c.handler.asked(); !slices.Equal(got, want) {
		t.Errorf("virt-handler was asked %q, want %q", got, want)
	}
}

func forwards(t *testing.T, c *cluster) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	echoes(t, c.socket(t, fmt.Sprintf("%svirtualmachineinstances/web/portforward/%d", objects, port)), "SSH-2.0-client\r\n")
	echoes(t, c.socket(t, fmt.Sprintf("%svirtualmachines/web/portforward/%d/tcp", objects, port)), "GET / HTTP/1.1\r\n")
	c.wants(t, c.Config, http.MethodGet, "virtualmachines/web/portforward/1", "", http.StatusInternalServerError, "dialing VM") // where nobody ever listens
	c.wants(t, c.Config, http.MethodGet, "virtualmachines/web/portforward/22/unix", "", http.StatusBadRequest, "is not forwarded")
}

// formerVersion asks as clients of v1alpha3 do: of virt-api itself, of virt-handler, and where it is said what cannot be.
func formerVersion(t *testing.T, c *cluster) {
	t.Helper()
	former := strings.Replace(objects, "/v1/", "/v1alpha3/", 1)
	ask := func(method, path, body string, wantCode int, wantWords string) {
		t.Helper()
		if code, said := c.ask(t, c.Config, method, former+path, body); code != wantCode || !strings.Contains(said, wantWords) {
			t.Errorf("%s %s: got %d %s, want %d with %q", method, path, code, said, wantCode, wantWords)
		}
	}
	if former == objects {
		t.Fatalf("there is no version in %s", objects)
	}
	c.vmi(t, c.vm(t, "former", virtv1.RunStrategyAlways))
	ask(http.MethodGet, "virtualmachines/former/expand-spec", "", http.StatusOK, `"name":"former"`)
	c.handler.asked()
	ask(http.MethodPut, "virtualmachineinstances/former/pause", "", http.StatusOK, "")
	if asked := c.handler.asked(); len(asked) != 1 {
		t.Errorf("virt-handler was asked %q", asked)
	}
	ask(http.MethodPut, "virtualmachines/former/stop", "", http.StatusAccepted, "")
	c.wantStored(t, "former", "Halted")
	ask(http.MethodPut, "virtualmachines/nowhere/start", "", http.StatusNotFound, `virtualmachine.kubevirt.io \"nowhere\" not found`)
	asked, err := discovery.NewDiscoveryClientForConfig(c.Config)
	must(t, err)
	list, err := asked.ServerResourcesForGroupVersion("subresources.kubevirt.io/v1alpha3")
	must(t, err)
	current, err := asked.ServerResourcesForGroupVersion("subresources.kubevirt.io/v1")
	must(t, err)
	if len(list.APIResources) == 0 || len(list.APIResources) != len(current.APIResources) {
		t.Errorf("%d resources are discovered, and %d of v1", len(list.APIResources), len(current.APIResources))
	}
}

func saysWhatIsMissing(t *testing.T, c *cluster) {
	t.Helper()
	c.wants(t, c.Config, http.MethodPut, "virtualmachines/web/migrate", "", http.StatusNotImplemented, "live migration is not built yet")
}

func keepsTrust(t *testing.T, c *cluster) {
	t.Helper()
	read := func() *unstructured.Unstructured {
		service := &unstructured.Unstructured{}
		service.SetAPIVersion("apiregistration.k8s.io/v1")
		service.SetKind("APIService")
		must(t, c.Get(t.Context(), client.ObjectKey{Name: "v1.subresources.kubevirt.io"}, service))
		return service
	}
	bundle := func() string {
		text, _, _ := unstructured.NestedString(read().Object, "spec", "caBundle")
		return text
	}
	before := bundle()
	must(t, c.Patch(t.Context(), read(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"caBundle":null}}`)))) // the API server writes it, too
	gomega.NewWithT(t).Eventually(bundle, bound, "200ms").Should(gomega.Equal(before), "virt-api writes its authorities")
}

// selfSigned is a certificate of name that nobody vouches for.
func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
