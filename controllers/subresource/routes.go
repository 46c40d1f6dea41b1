package subresource

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/profiler"
)

// Where the API is.
const (
	groupPath      = "/apis/" + virtv1.SubresourceGroupName
	versionPath    = groupPath + "/{version}"
	namespacedPath = versionPath + "/namespaces/{namespace}/"
)

// answer answers a request, or says why not.
type answer func(*Server, http.ResponseWriter, *http.Request) error

// route is one thing that can be asked of an object in a namespace.
type route struct {
	method, path string
	serve        answer
	// missing says why it is not served, which is then the answer.
	missing string
}

// routes are what is asked of objects, each of which a role must allow.
var routes = []route{
	{method: http.MethodPut, path: "virtualmachines/{name}/start", serve: (*Server).start},
	{method: http.MethodPut, path: "virtualmachines/{name}/stop", serve: (*Server).stop},
	{method: http.MethodPut, path: "virtualmachines/{name}/restart", serve: (*Server).restart},
	{method: http.MethodPut, path: "virtualmachines/{name}/rename", serve: (*Server).rename},
	{method: http.MethodPut, path: "virtualmachines/{name}/addvolume", serve: changeMachineVolumes(readAddVolume)},
	{method: http.MethodPut, path: "virtualmachines/{name}/removevolume", serve: changeMachineVolumes(readRemoveVolume)},
	{method: http.MethodPut, path: "virtualmachines/{name}/memorydump", serve: (*Server).memoryDump},
	{method: http.MethodPut, path: "virtualmachines/{name}/removememorydump", serve: (*Server).removeMemoryDump},
	{method: http.MethodGet, path: "virtualmachines/{name}/expand-spec", serve: (*Server).expandStored},
	{method: http.MethodGet, path: "virtualmachines/{name}/objectgraph", serve: (*Server).graphOfVM},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/objectgraph", serve: (*Server).graphOfVMI},
	{method: http.MethodPut, path: "expand-vm-spec", serve: (*Server).expandSent},
	{method: http.MethodGet, path: "virtualmachines/{name}/portforward/{port}", serve: forwardPort((*Server).instanceOfVM)},
	{method: http.MethodGet, path: "virtualmachines/{name}/portforward/{port}/{protocol}", serve: forwardPort((*Server).instanceOfVM)},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/portforward/{port}", serve: forwardPort((*Server).instance)},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/portforward/{port}/{protocol}", serve: forwardPort((*Server).instance)},

	{method: http.MethodPut, path: "virtualmachineinstances/{name}/pause", serve: changeable("pause", canPause)},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/unpause", serve: changeable("unpause", canUnpause)},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/freeze", serve: handedOn("freeze", running(vmNotRunning))},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/unfreeze", serve: handedOn("unfreeze", running(vmiNotRunning))},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/reset", serve: handedOn("reset", canReset)},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/softreboot", serve: handedOn("softreboot", canSoftReboot)},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/addvolume", serve: changeInstanceVolumes(readAddVolume)},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/removevolume", serve: changeInstanceVolumes(readRemoveVolume)},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/backup", serve: (*Server).backup},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/guestosinfo", serve: handedOn("guestosinfo", hasAgent)},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/userlist", serve: handedOn("userlist", hasAgent)},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/filesystemlist", serve: handedOn("filesystemlist", hasAgent)},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/console", serve: handedOn("console", hasConsole)},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/vnc", serve: handedOn("vnc", hasGraphics)},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/vnc/screenshot", serve: handedOn("vnc/screenshot", hasGraphics)},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/usbredir", serve: handedOn("usbredir", hasUSBSlots)},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/vsock", serve: (*Server).vsock},

	{method: http.MethodPut, path: "virtualmachines/{name}/migrate", missing: noMigration},
	{method: http.MethodPut, path: "virtualmachines/{name}/evacuate/cancel", missing: noEvacuation},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/evacuate/cancel", missing: noEvacuation},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/redefine-checkpoint", missing: noCheckpoint},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/sev/fetchcertchain", missing: noSEV},
	{method: http.MethodGet, path: "virtualmachineinstances/{name}/sev/querylaunchmeasurement", missing: noSEV},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/sev/setupsession", missing: noSEV},
	{method: http.MethodPut, path: "virtualmachineinstances/{name}/sev/injectlaunchsecret", missing: noSEV},
}

// Why something is not served.
const (
	noMigration  = "live migration is not built yet; stop the virtual machine and start it on another node"
	noEvacuation = "an eviction cannot be taken back yet; what says that a guest is to leave its node goes when it is stopped"
	noCheckpoint = "there is nothing to define again: checkpoints are QEMU's and end with it, and the first backup after that is full"
	noSEV        = "launch security is not built yet"
	noGuestfs    = "virt-api was started without the image of the guestfs tools; name one: virtctl guestfs --image"
)

// pages are what everybody may see who reaches virt-api: what there is, and that it works.
var pages = []route{
	{method: http.MethodGet, path: "/{$}", serve: (*Server).rootPaths},
	{method: http.MethodGet, path: "/apis", serve: (*Server).groups},
	{method: http.MethodGet, path: groupPath, serve: (*Server).group},
	{method: http.MethodGet, path: versionPath, serve: (*Server).resources},
	{method: http.MethodGet, path: "/openapi/v2", serve: (*Server).openAPIv2},
	{method: http.MethodGet, path: "/openapi/v3", serve: (*Server).openAPIv3},
	{method: http.MethodGet, path: "/openapi/v3" + versionPath, serve: (*Server).openAPIv3Of},
	{method: http.MethodGet, path: "/healthz", serve: (*Server).healthy},
}

// versionPages are those of each version, which clients are told of as they are of routes.
var versionPages = []route{
	{method: http.MethodGet, path: versionPath + "/healthz", serve: (*Server).connected},
	{method: http.MethodGet, path: versionPath + "/version", serve: (*Server).version},
	{method: http.MethodGet, path: versionPath + "/guestfs", serve: (*Server).guestfs},
	{method: http.MethodGet, path: versionPath + "/" + startProfiler, serve: profiling(startProfiler, "start profiler", inComponents(profiler.StartPath))},
	{method: http.MethodGet, path: versionPath + "/" + stopProfiler, serve: profiling(stopProfiler, "stop profiler", inComponents(profiler.StopPath))},
	{method: http.MethodGet, path: versionPath + "/" + dumpProfiler, serve: profiling(dumpProfiler, "dump profiler results", (*Server).dumpComponents)},
}

// resource is what roles name.
type resource struct{ name, subresource string }

// String is as roles write it.
func (r resource) String() string {
	if r.subresource == "" {
		return r.name
	}
	return r.name + "/" + r.subresource
}

// resource is what a role must allow for the route.
func (r route) resource() resource {
	segments := strings.Split(r.path, "/")
	what := resource{name: segments[0]}
	if len(segments) > 2 {
		what.subresource = segments[2]
	}
	return what
}

// answer is what the route answers with.
func (r route) answer() answer {
	if r.missing == "" {
		return r.serve
	}
	return func(*Server, http.ResponseWriter, *http.Request) error { return notImplemented(r.missing) }
}

func notImplemented(why string) error {
	return refuse(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotImplemented, Reason: "NotImplemented", Message: why,
	}})
}

// routed makes the multiplexer of everything that there is.
func (s *Server) routed() *http.ServeMux {
	mux := http.NewServeMux()
	add := func(method, path, what string, serve answer) {
		mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, request *http.Request) {
			if err := serve(s, w, request); err != nil {
				fail(w, request, err)
			}
		})
		mux.HandleFunc(path, func(w http.ResponseWriter, request *http.Request) {
			group := schema.GroupResource{Group: virtv1.SubresourceGroupName, Resource: what}
			fail(w, request, refuse(apierrors.NewMethodNotSupported(group, strings.ToLower(request.Method))))
		})
	}
	for _, r := range slices.Concat(pages, versionPages) {
		add(r.method, r.path, r.path, known(virtv1.SubresourceGroupVersions, r.answer()))
	}
	for _, r := range routes {
		add(r.method, namespacedPath+r.path, r.resource().String(), known(virtv1.SubresourceGroupVersions, guarded(r)))
	}
	for _, n := range neighbours() {
		s.addNeighbour(mux, n)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, request *http.Request) { fail(w, request, notFound(request)) })
	return mux
}

// guarded answers those whom the front proxy names and a role allows it.
func guarded(r route) answer {
	what, serve := r.resource(), r.answer()
	return func(s *Server, w http.ResponseWriter, request *http.Request) error {
		user, err := s.proxy.identify(request)
		if err != nil {
			return err
		}
		if err := s.authorize(request, user, what); err != nil {
			return err
		}
		return serve(s, w, request)
	}
}

// known refuses versions that are none of these.
func known(versions []schema.GroupVersion, serve answer) answer {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		if version := r.PathValue("version"); version != "" && !slices.ContainsFunc(versions, func(gv schema.GroupVersion) bool { return gv.Version == version }) {
			return notFound(r)
		}
		return serve(s, w, r)
	}
}

func notFound(r *http.Request) error {
	return refuse(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("the server could not find the requested resource: there is no %s", r.URL.Path),
	}})
}
