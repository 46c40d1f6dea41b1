package subresource

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/rename"
)

// description is what clients and generators are told of a route, beyond its path.
type description struct {
	// does says what the verb does.
	does string
	// body is a value of the type that a client sends, nil for none; needed says that it must.
	body   any
	needed bool
	// kind is that of the body, where an object is created: clients look for what they create by its kind.
	kind  metav1.GroupVersionKind
	query []parameter
	// answers are values of the types of the answers by their codes, nil for one without content.
	answers map[int]any
	// content is the media type of answers that are no JSON.
	content string
}

// parameter is one of a path or a query.
type parameter struct {
	name, kind, what string
	required         bool
}

// Answers of several routes.
var (
	taken     = map[int]any{http.StatusAccepted: nil}
	tried     = map[int]any{http.StatusAccepted: nil, http.StatusOK: nil}
	streams   = map[int]any{http.StatusSwitchingProtocols: nil}
	machine   = map[int]any{http.StatusOK: virtv1.VirtualMachine{}}
	graphNode = map[int]any{http.StatusOK: virtv1.ObjectGraphNode{}}
)

// ofPath are the parameters of paths.
var ofPath = map[string]parameter{
	"namespace": {name: "namespace", kind: "string", what: "namespace of the object", required: true},
	"name":      {name: "name", kind: "string", what: "name of the object", required: true},
	"port":      {name: "port", kind: "integer", what: "port of the guest, 1 to 65535", required: true},
	"protocol":  {name: "protocol", kind: "string", what: "tcp or udp", required: true},
}

// descriptions are those of the routes that are served, by their paths.
var descriptions = map[string]description{
	"virtualmachines/{name}/start":   {does: "Starts a virtual machine.", body: virtv1.StartOptions{}, answers: taken},
	"virtualmachines/{name}/stop":    {does: "Stops a virtual machine.", body: virtv1.StopOptions{}, answers: taken},
	"virtualmachines/{name}/restart": {does: "Stops a virtual machine and starts it again.", body: virtv1.RestartOptions{}, answers: taken},
	"virtualmachines/{name}/rename":  {does: "Gives a stopped virtual machine another name.", body: rename.Options{}, needed: true, answers: taken},
	"virtualmachines/{name}/addvolume": {
		does: "Adds a disk to a virtual machine, and to its guest when that runs.", body: virtv1.AddVolumeOptions{}, needed: true, answers: taken,
	},
	"virtualmachines/{name}/removevolume": {
		does: "Takes a disk from a virtual machine, and from its guest when that runs.", body: virtv1.RemoveVolumeOptions{}, needed: true, answers: taken,
	},
	"virtualmachines/{name}/memorydump": {
		does: "Dumps the memory of the guest to a claim.", body: virtv1.VirtualMachineMemoryDumpRequest{}, answers: taken,
	},
	"virtualmachines/{name}/removememorydump": {does: "Lets go of the claim with the dump, which stays.", answers: taken},
	"virtualmachines/{name}/expand-spec":      {does: "Shows the virtual machine with what its instance type and preference say.", answers: machine},
	"virtualmachines/{name}/objectgraph":      {does: "Shows what the virtual machine is made of.", body: virtv1.ObjectGraphOptions{}, answers: graphNode},
	"virtualmachineinstances/{name}/objectgraph": {
		does: "Shows what the guest is made of.", body: virtv1.ObjectGraphOptions{}, answers: graphNode,
	},
	"expand-vm-spec": {
		does: "Shows a virtual machine that is sent with what its instance type and preference say.", body: virtv1.VirtualMachine{}, needed: true, answers: machine,
	},
	"virtualmachines/{name}/portforward/{port}":                    forwarding,
	"virtualmachines/{name}/portforward/{port}/{protocol}":         forwarding,
	"virtualmachineinstances/{name}/portforward/{port}":            forwarding,
	"virtualmachineinstances/{name}/portforward/{port}/{protocol}": forwarding,

	"virtualmachineinstances/{name}/pause":   {does: "Makes the guest stand still.", body: virtv1.PauseOptions{}, answers: tried},
	"virtualmachineinstances/{name}/unpause": {does: "Lets the guest go on.", body: virtv1.UnpauseOptions{}, answers: tried},
	"virtualmachineinstances/{name}/freeze": {
		does: "Makes the guest's file systems stand still, for a while.", body: virtv1.FreezeUnfreezeTimeout{}, answers: taken,
	},
	"virtualmachineinstances/{name}/unfreeze":   {does: "Lets the guest's file systems go on.", answers: taken},
	"virtualmachineinstances/{name}/reset":      {does: "Resets the guest, as its button does.", answers: taken},
	"virtualmachineinstances/{name}/softreboot": {does: "Asks the guest to restart.", answers: taken},
	"virtualmachineinstances/{name}/addvolume": {
		does: "Adds a disk to the guest.", body: virtv1.AddVolumeOptions{}, needed: true, answers: taken,
	},
	"virtualmachineinstances/{name}/removevolume": {
		does: "Takes a disk from the guest.", body: virtv1.RemoveVolumeOptions{}, needed: true, answers: taken,
	},
	"virtualmachineinstances/{name}/backup": {
		does: "Ends the backup of the guest that goes on.", body: backupv1.BackupOptions{}, needed: true, answers: taken,
	},
	"virtualmachineinstances/{name}/guestosinfo": {
		does: "Shows what the guest's agent tells of it.", answers: map[int]any{http.StatusOK: virtv1.VirtualMachineInstanceGuestAgentInfo{}},
	},
	"virtualmachineinstances/{name}/userlist": {
		does: "Lists who is logged in.", answers: map[int]any{http.StatusOK: virtv1.VirtualMachineInstanceGuestOSUserList{}},
	},
	"virtualmachineinstances/{name}/filesystemlist": {
		does: "Lists the guest's file systems.", answers: map[int]any{http.StatusOK: virtv1.VirtualMachineInstanceFileSystemList{}},
	},
	"virtualmachineinstances/{name}/console":  {does: "Opens the serial console, as a web socket of protocol " + subprotocol + ".", answers: streams},
	"virtualmachineinstances/{name}/vnc":      {does: "Opens the screen by VNC, as a web socket of protocol " + subprotocol + ".", answers: streams},
	"virtualmachineinstances/{name}/usbredir": {does: "Lends the guest a USB device, as a web socket of protocol " + subprotocol + ".", answers: streams},
	"virtualmachineinstances/{name}/vnc/screenshot": {
		does: "Shows the screen, as a picture.", content: "image/png", answers: map[int]any{http.StatusOK: []byte{}},
		query: []parameter{{name: "moveCursor", kind: "boolean", what: "moves the pointer first, which ends the saving of the screen"}},
	},
	"virtualmachineinstances/{name}/vsock": {
		does: "Connects with a program in the guest that listens on a VSOCK port, as a web socket of protocol " + subprotocol + ".", answers: streams,
		query: []parameter{
			{name: "port", kind: "integer", what: "port on which the program listens", required: true},
			{name: "tls", kind: "boolean", what: "encrypts what goes to the guest; true when it is left out"},
		},
	},
}

var forwarding = description{
	does: "Connects with a port of the guest, as a web socket of protocol " + subprotocol + ": TCP where no protocol is named.", answers: streams,
}

// pageDescriptions are those of the pages of a version, by the ends of their paths.
var pageDescriptions = map[string]description{
	"/healthz": {does: "Says whether the API server is reached.", answers: map[int]any{http.StatusOK: map[string]map[string]string{}}},
	"/version": {does: "Says what runs here.", answers: map[int]any{http.StatusOK: version.Info{}}},
	"/guestfs": {does: "Names the image of the guestfs tools.", answers: map[int]any{http.StatusOK: map[string]string{}}},

	"/" + startProfiler: {does: "Has the components record their use of processors.", answers: map[int]any{http.StatusOK: nil}},
	"/" + stopProfiler:  {does: "Has the components end what they record.", answers: map[int]any{http.StatusOK: nil}},
	"/" + dumpProfiler: {
		does: "Shows profiles of the components, by their pods.", body: virtv1.ClusterProfilerRequest{},
		answers: map[int]any{http.StatusOK: virtv1.ClusterProfilerResults{}, http.StatusNoContent: nil},
	},
}
