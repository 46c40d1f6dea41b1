// Package protocol is what a node's virt-handler and the processes of a launcher
// pod say to each other, over a unix socket that the handler makes in the pod.
//
// Package wire is the transport; these are the messages. The first message of a
// launcher is wire.Hello, then a State of what it runs, also when that is nothing.
package protocol

import (
	"strconv"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// Messages, with the side that sends each.
const (
	TypeSync      wire.Type = "sync"      // handler → launcher, payload Sync with container disks as files, reply State
	TypeShutdown  wire.Type = "shutdown"  // handler → launcher, payload Shutdown, empty reply once begun
	TypeDestroy   wire.Type = "destroy"   // handler → launcher, no payload: power off at once
	TypeGuestExec wire.Type = "guestExec" // handler → launcher, payload GuestExec, reply GuestExecResult
	// handler → launcher, known to launchers from wire.VersionControl on; empty replies.
	TypePause      wire.Type = "pause"      // stop the guest's processors
	TypeUnpause    wire.Type = "unpause"    // let them go on
	TypeReset      wire.Type = "reset"      // press the reset button
	TypeSoftReboot wire.Type = "softReboot" // ask the guest to restart: by its agent, else by ACPI
	TypeFreeze     wire.Type = "freeze"     // payload Freeze: make the guest's file systems stand still
	TypeUnfreeze   wire.Type = "unfreeze"   // let them go on
	// TypeConnect has payload Connect and one file, a connected stream socket, which the
	// launcher joins with the guest's device until either side ends.
	TypeConnect wire.Type = "connect"
	// TypeScreenshot has one file, to which the launcher writes the guest's screen as PNG.
	TypeScreenshot wire.Type = "screenshot"
	// What the guest's agent tells, asked at that moment.
	TypeGuestInfo   wire.Type = "guestInfo"   // reply v1.VirtualMachineInstanceGuestAgentInfo
	TypeUsers       wire.Type = "users"       // reply v1.VirtualMachineInstanceGuestOSUserList
	TypeFilesystems wire.Type = "filesystems" // reply v1.VirtualMachineInstanceFileSystemList
	// TypeStats asks what the guest used so far; reply Stats. Launchers know it from
	// wire.VersionStats on, and answer one at a time.
	TypeStats wire.Type = "stats"
	// TypeResize has payload Resize, empty reply. Launchers know it from wire.VersionResize on.
	TypeResize wire.Type = "resize"
	// Disks of a running guest, known to launchers from wire.VersionHotplug on. TypePlug has
	// payload Plug and one file, the claim's folder, or from wire.VersionDevices on its block device,
	// unless the claim is in the launcher's own pod, and the reply State; TypeUnplug has payload Unplug, and an empty reply once the
	// guest was asked. When it has let go, the next State is without the disk.
	TypePlug   wire.Type = "plug"
	TypeUnplug wire.Type = "unplug"
	// TypeHealth asks which part of the VM does not answer; reply Health, after a second at the
	// latest. An earlier launcher does not know it, and its refusal says that it answers.
	TypeHealth wire.Type = "health"
	// TypeMemoryDump has payload MemoryDump and one file, the claim's folder; the reply is the
	// State once the dump has begun, and a later State tells how it ended. Launchers know it
	// from wire.VersionMemoryDump on.
	TypeMemoryDump wire.Type = "memoryDump"
	// TypeBackup has payload Backup and one file, the claim's folder; the reply is the State that tells of
	// it, and a later State tells how it ended. TypeAbortBackup has payload AbortBackup, the reply is the State.
	// Launchers know them from wire.VersionBackup on.
	TypeBackup      wire.Type = "backup"
	TypeAbortBackup wire.Type = "abortBackup"
	// launcher → handler, payload State, an event without a reply; only the last State
	// of a domain that is over is a request, whose empty reply lets the launcher exit.
	TypeState wire.Type = "state"
)

// Sync tells the launcher what VM to run. It is sent at least once after each Hello
// and again whenever the VMI's spec changes; the launcher acts on the difference.
type Sync struct {
	VMI   *v1.VirtualMachineInstance `json:"vmi"`
	Facts Facts                      `json:"facts"`
}

// Facts are what the handler found or made on the node for this VMI.
type Facts struct {
	NodeName string `json:"nodeName"`
	// AllowEmulation permits software emulation when /dev/kvm is not in the pod.
	AllowEmulation bool `json:"allowEmulation"`
	// ContainerDisks names the volumes whose images are the files of this message, in order.
	ContainerDisks []string `json:"containerDisks,omitempty"`
	// Interfaces are the guest's network interfaces in the order of the VMI's spec.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// ClaimSizes is the capacity in bytes of each claim by name of its volume: the size
	// of the disk that is made on a Filesystem claim that is still empty.
	ClaimSizes map[string]int64 `json:"claimSizes,omitempty"`
	// Preallocated names the volumes whose claims keep all of their size: what the guest has no
	// more use for is not given back.
	Preallocated []string `json:"preallocated,omitempty"`
	// SMBIOS is what the KubeVirt object has all guests told of who made their machine; nil for the defaults.
	SMBIOS *v1.SMBiosConfiguration `json:"smbios,omitempty"`
	// BalloonPeriod is how often, in seconds, guests tell of their memory; 0 for never, nil for the default.
	BalloonPeriod *uint32 `json:"balloonPeriod,omitempty"`
	// Options are the KubeVirt object's for all guests; nil for none.
	Options *v1.VirtualMachineOptions `json:"options,omitempty"`
}

// Interface is a network interface that the handler prepared in the pod.
type Interface struct {
	// Name is spec.domain.devices.interfaces[].name.
	Name string `json:"name"`
	// Tap is the tap device in the pod's network namespace.
	Tap string `json:"tap"`
	// MAC is the guest's hardware address.
	MAC string `json:"mac"`
	MTU int    `json:"mtu"`
	// Queues is the number of queue pairs; 1 without multiqueue.
	Queues int `json:"queues"`
	// PodIPs are the addresses by which others reach the guest.
	PodIPs []string `json:"podIPs,omitempty"`
	// DHCP is the lease that the launcher serves on the tap; nil for none.
	DHCP *Lease `json:"dhcp,omitempty"`
}

// Lease is what the launcher's DHCP server answers.
type Lease struct {
	// Address is the guest's address with its prefix length, such as 10.0.2.2/24.
	Address string `json:"address"`
	// Gateway is the default one; empty for none.
	Gateway string `json:"gateway,omitempty"`
	// Server is the DHCP server's own address on the tap; empty where that is the gateway's. With one, Address is
	// the pod's too: what the launcher sends there does not leave the pod, so answers are broadcast.
	Server string `json:"server,omitempty"`
	// Routes are all of the guest's but that to its subnet, in the order of making; none where the gateway says it all.
	Routes []Route  `json:"routes,omitempty"`
	DNS    []string `json:"dns,omitempty"`
	Search []string `json:"search,omitempty"`
	// Hostname is the guest's, spec.hostname or the VMI's name.
	Hostname string `json:"hostname,omitempty"`
	// Options are what else the VMI has the guest told.
	Options []DHCPOption `json:"options,omitempty"`
}

// Route is a way of the guest to others.
type Route struct {
	// To is a prefix such as 10.244.0.0/16.
	To string `json:"to"`
	// Via is the next router's address; empty where To is on the link.
	Via string `json:"via,omitempty"`
}

// DHCPOption is an option of DHCP as it goes over the wire.
type DHCPOption struct {
	Code  uint8  `json:"code"`
	Value []byte `json:"value"`
}

// Shutdown asks the guest to power off, and ends it when the grace period is over.
type Shutdown struct {
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"`
}

// GuestExec runs a command in the guest through its agent.
type GuestExec struct {
	Command        string   `json:"command"`
	Args           []string `json:"args,omitempty"`
	TimeoutSeconds int32    `json:"timeoutSeconds"`
}

// GuestExecResult is what the command left behind.
type GuestExecResult struct {
	ExitCode int    `json:"exitCode"`
	Stdout   string `json:"stdout,omitempty"`
	Stderr   string `json:"stderr,omitempty"`
	// Truncated says that the streams are not whole.
	Truncated bool `json:"truncated,omitempty"`
}

// Freeze makes the guest's file systems stand still, and go on by themselves after a while,
// for whoever asked may be gone by then.
type Freeze struct {
	// UnfreezeTimeoutSeconds is how long they stand at most; five minutes when zero.
	UnfreezeTimeoutSeconds int32 `json:"unfreezeTimeoutSeconds"`
}

// Plug gives a running guest one more disk, or a CD-ROM drive its disc.
type Plug struct {
	// VMI has the disk and its volume in its spec.
	VMI    *v1.VirtualMachineInstance `json:"vmi"`
	Volume string                     `json:"volume"`
	// ClaimSize is the claim's capacity in bytes: the size of the disk that is made on an
	// empty claim.
	ClaimSize int64 `json:"claimSize,omitempty"`
	// Preallocated says that the claim keeps all of its size.
	Preallocated bool `json:"preallocated,omitempty"`
}

// Unplug takes a disk out of a running guest, or the disc out of a CD-ROM drive.
type Unplug struct {
	// VMI says by its spec what the disk is.
	VMI    *v1.VirtualMachineInstance `json:"vmi"`
	Volume string                     `json:"volume"`
}

// Channel names a device of the guest that a stream can be joined with.
type Channel string

// Channels.
const (
	ChannelConsole Channel = "console" // the first serial port
	ChannelVNC     Channel = "vnc"     // the screen, in the remote framebuffer protocol
)

// ChannelUSB is a slot for a USB device of a client, in the protocol of usbredir. Slots count from 0.
func ChannelUSB(slot int) Channel { return Channel("usb" + strconv.Itoa(slot)) }

// Connect joins the stream that comes with it.
type Connect struct {
	Channel Channel `json:"channel"`
}

// Resize changes the size of the running guest; what is zero stays.
type Resize struct {
	// VCPUs is how many processors the guest is to have.
	VCPUs uint `json:"vcpus,omitempty"`
	// Memory is how many bytes it is to have.
	Memory int64 `json:"memory,omitempty"`
}

// Phase is where a domain is in its life.
type Phase string

// Phases of a domain.
const (
	PhaseNone     Phase = ""         // not defined yet
	PhaseStarting Phase = "Starting" // being defined or started
	PhaseRunning  Phase = "Running"
	PhasePaused   Phase = "Paused"
	PhaseShutdown Phase = "Shutdown" // the guest powered off, or was asked to and did
	PhaseCrashed  Phase = "Crashed"  // the guest panicked or QEMU died
	PhaseFailed   Phase = "Failed"   // could not be started; see Message
)

// ReasonDiskInUse is the reason of Starting while a disk is used by another; Message says which.
const ReasonDiskInUse = "DiskInUse"

// FSFrozen is the API's word for file systems that were asked to stand still.
const FSFrozen = "frozen"

// State is what the launcher knows of its domain, sent whole at every change.
type State struct {
	Phase Phase `json:"phase"`
	// Reason is a word in UpperCamelCase, Message a sentence for the user.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Since is when Phase was entered.
	Since time.Time `json:"since"`
	// KVM says whether the guest runs on hardware virtualization.
	KVM     bool   `json:"kvm"`
	Machine string `json:"machine,omitempty"`
	// AgentConnected says whether the guest's agent has its channel open.
	AgentConnected bool                                  `json:"agentConnected"`
	AgentVersion   string                                `json:"agentVersion,omitempty"`
	GuestOS        *v1.VirtualMachineInstanceGuestOSInfo `json:"guestOS,omitempty"`
	// Frozen says that the guest's file systems were asked to stand still.
	Frozen bool `json:"frozen,omitempty"`
	// Terminated says that the guest was asked to shut down because the launcher got a signal,
	// and that nobody had asked for it before: the kubelet ended the container.
	Terminated bool `json:"terminated,omitempty"`
	// AccessCredentials says whether the guest has them; nil until its agent was told.
	AccessCredentials *AccessCredentials `json:"accessCredentials,omitempty"`
	// Interfaces are the agent's view of the guest's interfaces.
	Interfaces []GuestInterface `json:"interfaces,omitempty"`
	// Disks are the virtual disks as QEMU has them.
	Disks []Disk `json:"disks,omitempty"`
	// Filesystems are the folders that the guest was given to mount, in the order of the VMI's spec.
	Filesystems []Filesystem `json:"filesystems,omitempty"`
	// VCPUs is how many processors the guest has; zero where the launcher does not tell.
	VCPUs uint `json:"vcpus,omitempty"`
	// Memory is the guest's; nil where the launcher does not tell.
	Memory *Memory `json:"memory,omitempty"`
	// Dumps are the dumps of the guest's memory, of each volume the last.
	Dumps []Dump `json:"dumps,omitempty"`
	// Backup is the last backup of the guest's disks; nil for none.
	Backup *BackupState `json:"backup,omitempty"`
}

// Memory is a guest's memory in bytes: what it began with, what it was offered, and what it
// uses of that.
type Memory struct {
	AtBoot    int64 `json:"atBoot"`
	Requested int64 `json:"requested"`
	Current   int64 `json:"current"`
}

// AccessCredentials is how the last attempt to give the guest its keys and passwords ended.
type AccessCredentials struct {
	Synchronized bool `json:"synchronized"`
	// Message says why not, without any secret.
	Message string `json:"message,omitempty"`
}

// GuestInterface is a network interface as the guest's agent reports it.
type GuestInterface struct {
	Name string   `json:"name"`
	MAC  string   `json:"mac"`
	IPs  []string `json:"ips,omitempty"`
}

// Filesystem is a folder of the pod that the guest mounts.
type Filesystem struct {
	Volume string `json:"volume"`
	// Message says why the guest has no access to it any more; empty while it has.
	Message string `json:"message,omitempty"`
}

// Disk is a virtual disk of the running domain.
type Disk struct {
	Volume string `json:"volume"`
	Target string `json:"target"`
	// Size is the disk's virtual size in bytes.
	Size int64 `json:"size"`
	// Claim is the claim that the disk was plugged in from; empty for one there from the start.
	Claim string `json:"claim,omitempty"`
	// Leaving says that the guest was asked to let go of the disk, Message why it has not.
	Leaving bool   `json:"leaving,omitempty"`
	Message string `json:"message,omitempty"`
}
