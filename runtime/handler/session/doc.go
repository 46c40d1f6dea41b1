// Package session serves the sockets of the node's launcher pods: one socket in the
// `sockets` volume of each pod, over which virt-launcher and the container-disk init
// containers speak runtime/protocol.
//
// A Session is what is known of one pod's processes: the launcher's connection, the
// state that it last sent, the container disks handed over. Nothing of it is stored;
// after a restart sockets are made anew and the pods' processes connect again.
package session
