// Package wire carries messages and open files over a unix socket, in both
// directions: the transport under package protocol, with no Kubernetes in it, so
// that the smallest programs of a launcher pod can speak it.
//
// A frame is a four-byte big-endian length and that many bytes of JSON; open files
// travel with a frame as SCM_RIGHTS. Either side may send requests; a reply repeats
// the request's id. The first frame of a client is Hello.
package wire

// Version is the protocol's version that this build speaks. A launcher of an earlier
// version keeps being served for as long as its messages are known, so fields of
// messages are only ever added.
const Version = VersionBackup

// VersionControl is the first version whose launchers know the requests of users: pause,
// console, screenshot and the like.
const VersionControl = 2

// VersionStats is the first version whose launchers tell what their guests use.
const VersionStats = 3

// VersionResize is the first version whose launchers change the size of a running guest.
const VersionResize = 4

// VersionHotplug is the first version whose launchers take disks in and out of a running guest.
const VersionHotplug = 5

// VersionMemoryDump is the first version whose launchers write a guest's memory to a claim.
const VersionMemoryDump = 6

// VersionDevices is the first version whose launchers give a running guest a disk on an open block device.
const VersionDevices = 6

// VersionBackup is the first version whose launchers write the disks of a running guest to a claim.
const VersionBackup = 7

// Type names a message.
type Type string

// Messages of the transport itself.
const (
	TypeHello Type = "hello" // client → handler, payload Hello, reply Hello
	TypeReply Type = "reply" // answer to any request
)

// Role says what kind of client connects.
type Role string

// Roles of clients.
const (
	RoleLauncher      Role = "launcher"
	RoleContainerDisk Role = "container-disk" // its Hello carries one open file: the disk's image
	// RoleVolume is the process of an attachment pod: it does nothing but be there, so that
	// the handler reaches the pod's volume through it.
	RoleVolume Role = "volume"
)

// Hello is the first message of a connection, and its answer.
type Hello struct {
	Version int    `json:"version"`
	Role    Role   `json:"role,omitempty"`
	VMIUID  string `json:"vmiUID,omitempty"`
	// Volume is the VMI's volume whose image a container-disk client hands over, or that
	// an attachment pod holds.
	Volume string `json:"volume,omitempty"`
}
