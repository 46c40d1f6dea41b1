package protocol

import "time"

// Backup has the guest's disks written, all as they are at one moment, to files below the folder that comes
// with it.
type Backup struct {
	// ID tells this backup from others. One that was asked for before does not begin again.
	ID string `json:"id"`
	// Folder are the names of folders, each in the one before. The last is made, and there when all of it is whole.
	Folder []string     `json:"folder"`
	Disks  []BackupDisk `json:"disks"`
	// Tracker is whose checkpoint is made, Checkpoint is what that is called, Base the one of which the
	// backup is to have only what has changed since. They are empty for none.
	Tracker     string `json:"tracker,omitempty"`
	Checkpoint  string `json:"checkpoint,omitempty"`
	Base        string `json:"base,omitempty"`
	SkipQuiesce bool   `json:"skipQuiesce,omitempty"`
}

// BackupDisk is a disk that is in a backup.
type BackupDisk struct {
	// Volume is the VMI's, File the name of the file, in qcow2.
	Volume string `json:"volume"`
	File   string `json:"file"`
	// Target is what the guest's disk is called, which the launcher tells.
	Target string `json:"target,omitempty"`
}

// AbortBackup ends the backup, of which nothing stays. One that is over, or that there is not, is no error.
type AbortBackup struct {
	ID string `json:"id"`
}

// BackupState is how a backup goes on, or ended.
type BackupState struct {
	ID    string    `json:"id"`
	Began time.Time `json:"began"`
	// Ended is when the files were whole, or the attempt had failed; nil while it goes on.
	Ended *time.Time `json:"ended,omitempty"`
	// Error says why it failed; there are no files then, and no new checkpoint.
	Error string `json:"error,omitempty"`
	// Disks are those that are in it, Copying says that QEMU has begun: the disks are as of then.
	Disks   []BackupDisk `json:"disks,omitempty"`
	Copying bool         `json:"copying,omitempty"`
	// Incremental says that the files have only what has changed since the base.
	Incremental bool `json:"incremental,omitempty"`
	// Quiesce is whether the guest's file systems stood still as QEMU began; Warning says what went wrong
	// although the backup did not fail.
	Quiesce Quiesce `json:"quiesce,omitempty"`
	Warning string  `json:"warning,omitempty"`
}

// Quiesce is whether file systems stood still, in the words of the field's API.
type Quiesce string

// What became of it.
const (
	QuiesceSucceeded Quiesce = "Succeeded"
	QuiesceFailed    Quiesce = "Failed"
	QuiesceSkipped   Quiesce = "Skipped"
)
