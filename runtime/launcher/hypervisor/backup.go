package hypervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/slipway-vm/slipway/internal/names"
)

// BackupPrefix begins what QEMU calls everything of a backup: jobs, images and bitmaps. Libvirt leaves
// alone what it has not named.
const BackupPrefix = "slipway-backup-"

// backupSet is the first of the sets of open files in QEMU that backups are written to.
const backupSet = 1 << 22

// jobEvent is what QEMU tells when a job enters another state.
const jobEvent = "JOB_STATUS_CHANGE"

// JobConcluded is the state of a job that has ended, well or not.
const JobConcluded = "concluded"

// BlockDevice is a disk of the guest as QEMU has it.
type BlockDevice struct {
	// Node is the image, Size its bytes as the guest sees them.
	Node string
	Size int64
	// Used is how many bytes of its file's system the image takes; 0 where nobody knows.
	Used int64
	// Bitmaps are those that record what is written, with the bytes that were since each was made.
	Bitmaps map[string]int64
}

// Copy is how one disk is backed up.
type Copy struct {
	// Job names the copy, Node is what is copied, Target the image that it is copied to.
	Job, Node, Target string
	// New is a bitmap that is made, and records from now on; empty for none.
	New string
	// Since is the bitmap that says what to copy; empty for all of it. It stays as it is.
	Since string
}

// Job is the copying of a disk.
type Job struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Error  string `json:"error"`
}

// BlockDevices are the guest's disks, by alias.
func (h *Hypervisor) BlockDevices() (map[string]BlockDevice, error) {
	answer, err := h.ask("query-block", nil)
	if err != nil {
		return nil, fmt.Errorf("asking QEMU for the guest's disks: %w", err)
	}
	return blockDevices(answer)
}

// blockDevices reads QEMU's answer.
func blockDevices(answer json.RawMessage) (map[string]BlockDevice, error) {
	var all []struct {
		Device   string `json:"qdev"`
		Inserted *struct {
			Node    string `json:"node-name"`
			File    string `json:"file"`
			Bitmaps []struct {
				Name  string `json:"name"`
				Count int64  `json:"count"`
			} `json:"dirty-bitmaps"`
			Image struct {
				Size int64 `json:"virtual-size"`
				Used int64 `json:"actual-size"`
			} `json:"image"`
		} `json:"inserted"`
	}
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, fmt.Errorf("reading QEMU's list of the guest's disks: %w", err)
	}
	devices := map[string]BlockDevice{}
	for _, one := range all {
		alias := aliasIn(one.Device)
		if alias == "" || one.Inserted == nil {
			continue
		}
		device := BlockDevice{Node: one.Inserted.Node, Size: one.Inserted.Image.Size, Used: one.Inserted.Image.Used, Bitmaps: map[string]int64{}}
		if strings.HasPrefix(one.Inserted.File, names.LauncherBlockDir+"/") { // of a device nobody knows what is in use
			device.Used = 0
		}
		for _, bitmap := range one.Inserted.Bitmaps {
			device.Bitmaps[bitmap.Name] = bitmap.Count
		}
		devices[alias] = device
	}
	return devices, nil
}

// aliasIn is the alias of a device which QEMU knows by its own path, or by the alias itself.
func aliasIn(device string) string {
	for part := range strings.SplitSeq(device, "/") {
		if strings.HasPrefix(part, deviceAlias) {
			return part
		}
	}
	return ""
}

// deviceAlias begins the aliases of disks that a VMI names.
const deviceAlias = "ua-"

// OpenTarget has QEMU open file, which holds an image in qcow2, under the name node. n tells it from others.
func (h *Hypervisor) OpenTarget(node string, n int, file *os.File) error {
	domain, _, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	if err := addFile(domain, backupSet+n, file); err != nil {
		return err
	}
	image := target(node, map[string]any{
		"node-name": fileOf(node), "driver": "file", "filename": path.Join(names.LauncherLentDir, strconv.Itoa(backupSet+n)), "locking": "off",
		"read-only": false, // as it is open, whatever becomes of the image
	})
	if _, err := monitor(domain, "blockdev-add", image); err != nil {
		return fmt.Errorf("having QEMU open %s: %w", file.Name(), err)
	}
	return nil
}

// target is an image in qcow2 on file: of what is zero no more than that is written.
func target(node string, file any) map[string]any {
	return map[string]any{"node-name": node, "driver": "qcow2", "detect-zeroes": "on", "file": file}
}

// fileOf is what QEMU calls the file of an image.
func fileOf(node string) string { return node + "-file" }

// WriteOut has QEMU write out all that it holds of the image that it opened as node, which is written to no more after that, and returns
// why that failed, "" for well: where an image is closed nobody is told.
func (h *Hypervisor) WriteOut(node string) (failure string, err error) {
	image := target(node, fileOf(node))
	image["read-only"] = true
	_, err = h.ask("blockdev-reopen", map[string]any{"options": []any{image}})
	if refused, ok := errors.AsType[refusal](err); ok {
		return "writing out the backup: " + refused.Error(), nil
	}
	return "", err
}

// CloseTarget has QEMU close what it opened as node and n. What it does not have is no error.
func (h *Hypervisor) CloseTarget(node string, n int) error {
	if err := h.undo("blockdev-del", map[string]any{"node-name": node}); err != nil {
		return fmt.Errorf("having QEMU close a backup: %w", err)
	}
	if err := h.undo("remove-fd", map[string]any{"fdset-id": backupSet + n}); err != nil {
		return fmt.Errorf("taking the file of a backup back from QEMU: %w", err)
	}
	return nil
}

// Copy begins to copy disks, all as they are at this moment: what the guest writes from now on is in the
// bitmaps that are made, and not in the copies.
func (h *Hypervisor) Copy(disks []Copy) error {
	if _, err := h.ask("transaction", map[string]any{"actions": actions(disks)}); err != nil {
		return fmt.Errorf("having QEMU copy the disks: %w", err)
	}
	return nil
}

// actions are those of the transaction. QEMU keeps each job until it is dismissed, so that no end is missed.
func actions(disks []Copy) []any {
	var all []any
	for _, disk := range disks {
		if disk.New != "" {
			all = append(all, action("block-dirty-bitmap-add", map[string]any{"node": disk.Node, "name": disk.New}))
		}
	}
	for _, disk := range disks {
		job := map[string]any{"job-id": disk.Job, "device": disk.Node, "target": disk.Target, "sync": "full", "auto-dismiss": false}
		if disk.Since != "" {
			job["sync"], job["bitmap"], job["bitmap-mode"] = "bitmap", disk.Since, "never"
		}
		all = append(all, action("blockdev-backup", job))
	}
	return all
}

func action(kind string, data map[string]any) map[string]any {
	return map[string]any{"type": kind, "data": data}
}

// Jobs are the jobs of backups that QEMU has, by name.
func (h *Hypervisor) Jobs() (map[string]Job, error) {
	answer, err := h.ask("query-jobs", nil)
	if err != nil {
		return nil, fmt.Errorf("asking QEMU for the backup: %w", err)
	}
	var all []Job
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, fmt.Errorf("asking QEMU for the backup: %w", err)
	}
	jobs := map[string]Job{}
	for _, job := range all {
		if strings.HasPrefix(job.ID, BackupPrefix) {
			jobs[job.ID] = job
		}
	}
	return jobs, nil
}

// CancelJob has a job end before it is done. One that has ended is no error.
func (h *Hypervisor) CancelJob(id string) error {
	return h.undo("job-cancel", map[string]any{"id": id})
}

// DismissJob has QEMU forget a job that has ended. One that QEMU does not have is no error.
func (h *Hypervisor) DismissJob(id string) error {
	return h.undo("job-dismiss", map[string]any{"id": id})
}

// RemoveBitmap has QEMU record no more what is written to node, under the name bitmap. One that there is not is no error.
func (h *Hypervisor) RemoveBitmap(node, bitmap string) error {
	return h.undo("block-dirty-bitmap-remove", map[string]any{"node": node, "name": bitmap})
}

// ask has QEMU execute a command.
func (h *Hypervisor) ask(command string, arguments map[string]any) (json.RawMessage, error) {
	domain, _, release, err := h.held()
	if err != nil {
		return nil, err
	}
	defer release()
	return monitor(domain, command, arguments)
}

// undo has QEMU execute a command that it refuses where there is nothing to undo.
func (h *Hypervisor) undo(command string, arguments map[string]any) error {
	_, err := h.ask(command, arguments)
	if refused, ok := errors.AsType[refusal](err); ok {
		h.options.Log.Debug("QEMU has nothing to undo", "command", command, "arguments", arguments, "reason", refused.Error())
		return nil
	}
	return err
}

// subscribeJobs asks for the changes of jobs.
func (h *Hypervisor) subscribeJobs(conn *libvirt.Connect) error {
	_, err := conn.DomainQemuMonitorEventRegister(nil, jobEvent, func(_ *libvirt.Connect, _ *libvirt.Domain, event *libvirt.DomainQemuMonitorEvent) {
		if ofBackup(event.Details) {
			h.events <- Event{Kind: BackupMoved}
		}
	}, 0)
	if err != nil {
		return fmt.Errorf("asking libvirt for the ends of backups: %w", err)
	}
	return nil
}

// ofBackup says whether QEMU's event tells that a job of a backup has ended.
func ofBackup(details string) bool {
	var job Job
	return json.Unmarshal([]byte(details), &job) == nil && strings.HasPrefix(job.ID, BackupPrefix) && job.Status == JobConcluded
}
