// Package backup is what virt-controller and a node's virt-handler agree on about backups of virtual
// machines, and which disks are in one.
//
// Virt-controller notes on the VMI what is to be backed up, and to where; virt-handler has the launcher
// do it, and tells in the VMI's status how it goes on. Where the note goes, all that is not done goes.
package backup

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// AnnotationRequest on a VMI is the Request that virt-controller made of it.
const AnnotationRequest = names.Domain + "backup"

// Reasons of the status of the volume that a backup is written to, once that has begun. Of what type it is,
// the field's status of backups on a VMI has no word for.
const (
	ReasonFull        = "FullBackup"
	ReasonIncremental = "IncrementalBackup"
)

// timeFormat is how the field writes the time of a backup in names.
const timeFormat = "2006-01-02_15-04-05"

// Request is a backup that a VMI is asked for.
type Request struct {
	// Name and UID are those of the VirtualMachineBackup, Created is when it was made.
	Name    string    `json:"name"`
	UID     types.UID `json:"uid"`
	Created time.Time `json:"created"`
	// Claim is written to.
	Claim string `json:"claim"`
	// Tracker is the uid of the VirtualMachineBackupTracker that the next backup goes on from; empty for none.
	Tracker types.UID `json:"tracker,omitempty"`
	// Base is the checkpoint of the tracker that this one goes on from; empty for a full backup.
	Base        string `json:"base,omitempty"`
	SkipQuiesce bool   `json:"skipQuiesce,omitempty"`
	// Abort says that it is to end.
	Abort bool `json:"abort,omitempty"`
}

// Requested is what vmi is asked for; nil for nothing.
func Requested(vmi *virtv1.VirtualMachineInstance) (*Request, error) {
	text := vmi.Annotations[AnnotationRequest]
	if text == "" {
		return nil, nil
	}
	request := &Request{}
	if err := json.Unmarshal([]byte(text), request); err != nil {
		return nil, fmt.Errorf("reading annotation %s of VMI %s/%s: %w", AnnotationRequest, vmi.Namespace, vmi.Name, err)
	}
	if request.Name == "" || request.UID == "" || request.Claim == "" {
		return nil, fmt.Errorf("annotation %s of VMI %s/%s names no backup, or no claim; remove it", AnnotationRequest, vmi.Namespace, vmi.Name)
	}
	return request, nil
}

// Encode is the annotation's value.
func (r *Request) Encode() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("writing the request of backup %s: %w", r.Name, err)
	}
	return string(text), nil
}

// Volume is what the claim is called among the VMI's volumes. No other backup's is called so.
func (r *Request) Volume() string { return volumePrefix + string(r.UID) }

const volumePrefix = "backup-"

// Target is the volume that a backup of vmi is to be written to; false for none, also where nobody can
// say which. It is not in the VMI's spec.
func Target(vmi *virtv1.VirtualMachineInstance) (virtv1.Volume, bool) {
	request, err := Requested(vmi)
	if err != nil || request == nil {
		return virtv1.Volume{}, false
	}
	source := &virtv1.MemoryDumpVolumeSource{} // what a claim is that holds files, and no disk
	source.ClaimName, source.Hotpluggable = request.Claim, true
	return virtv1.Volume{Name: request.Volume(), VolumeSource: virtv1.VolumeSource{MemoryDump: source}}, true
}

// Checkpoint is the name of the checkpoint that the backup makes, and of its folder, in the field's form.
func (r *Request) Checkpoint() string { return r.Name + "-" + r.Created.UTC().Format(timeFormat) }

// Folder is where on the claim the files of a backup of the machine called vm are, below its root.
func (r *Request) Folder(vm string) []string { return []string{vm, r.Checkpoint()} }

// File is the name of the file of a volume.
func (r *Request) File(volume string) string { return r.Name + "-" + volume + ".qcow2" }

// Validate says what of the names in a request cannot be in a path.
func (r *Request) Validate(vm string) error {
	for _, name := range []string{r.Name, vm} {
		if name == "" || strings.HasPrefix(name, ".") || strings.ContainsRune(name, '/') {
			return fmt.Errorf("%q cannot be in the name of a file", name)
		}
	}
	return nil
}
