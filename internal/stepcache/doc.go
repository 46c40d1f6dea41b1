// Package stepcache keeps the disks that provisioning steps leave, by what went into the step,
// so that a step whose result is there already is not run again.
//
// A Key is a hash of all that decides a step's result. An Entry is a DataVolume, a clone of the
// disk as the step left it, in the namespace of the run; its labels and annotations say whose
// result it is and what its content must be. A Lease of the key's name is the right to do the
// work, so that of two runs at the same moment one works and the other waits.
//
// What keeps a wrong disk out: an entry is used only in state ready, which it reaches by one
// patch after its clone is complete; and whoever uses it reads its content anew and compares it
// with the digest that was taken before it was cloned.
package stepcache

import (
	"errors"

	"github.com/slipway-vm/slipway/internal/names"
)

// State says how far an entry is.
type State string

// States of an entry.
const (
	Filling State = "filling" // its clone may be incomplete; never used
	Ready   State = "ready"
)

// Labels and annotations of entries.
const (
	LabelState       = names.Domain + "step-cache"        // the State; marks every entry
	LabelKey         = names.Domain + "step-cache-key"    // the key's first 63 digits
	AnnotationKey    = names.Domain + "step-cache-key"    // the whole key
	AnnotationDigest = names.Domain + "step-cache-digest" // the content that the disk must have
	AnnotationStep   = names.Domain + "step-cache-step"   // what the step was, for people
	AnnotationFilled = names.Domain + "step-cache-filled" // when the step was done; a restored disk carries it on
	AnnotationUsed   = names.Domain + "step-cache-used"   // when a run took it last
	AnnotationRun    = names.Domain + "step-cache-run"    // namespace/name of the TaskRun that made it
	AnnotationRunUID = names.Domain + "step-cache-run-uid"
)

// Annotations of claims that disk tasks work on, by which a retry knows how far the try before came.
const (
	// AnnotationHalf is on a claim while an entry is put into it, with the digest of the disk before,
	// the entry's key and digest. Until it is gone a device may be neither disk.
	AnnotationHalf = names.Domain + "step-cache-half"
	// AnnotationDone says which TaskRun did its step on the claim last: its uid, whether by an entry, and the key.
	AnnotationDone = names.Domain + "step-cache-done"
)

// KindWorker is the value of names.LabelPod on pods that read or copy an entry.
const KindWorker = "step-cache"

// FieldManager owns what runs write of the cache.
const FieldManager = "step-cache"

// namePrefix begins the name of every entry and of every Lease.
const namePrefix = "step-"

// ErrUncacheable is the error of a step that has no key; its text says why.
var ErrUncacheable = errors.New("the step is not cached")
