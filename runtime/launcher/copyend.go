package launcher

import (
	"errors"

	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
)

// cancelled is QEMU's word for a job that was ended before it was done.
const cancelled = "Operation canceled"

// followBackup goes on with a backup that has begun, as far as QEMU is with it; failure is why it is to
// fail, "" for not. over says that nothing is left to do, and that failure is how it ended. With an error it can be
// asked again.
func (m *machine) followBackup(b *backing, failure string) (over bool, why string, err error) {
	if !b.ended {
		if b.ended, failure, err = m.copiesEnded(b, failure); err != nil || !b.ended {
			return false, failure, err
		}
	}
	if failure == "" {
		if failure, err = m.writeOut(b); err != nil {
			return false, "", err
		}
	}
	if err := m.clearBackup(b, failure); err != nil {
		return false, failure, err
	}
	if failure == "" {
		if err := b.keep(); err != nil {
			failure = err.Error()
		}
	} else if err := b.discard(); err != nil {
		failure = errors.Join(errors.New(failure), err).Error()
	}
	m.settleBitmaps(b, failure)
	return true, failure, nil
}

// writeOut has QEMU write out all of the copies, and says why that failed. What is done is not done again.
func (m *machine) writeOut(b *backing) (failure string, err error) {
	for i := range b.disks {
		disk := &b.disks[i]
		if disk.written {
			continue
		}
		if err := m.hv.DismissJob(disk.Job); err != nil {
			return "", err
		}
		failure, err := m.hv.WriteOut(disk.Target)
		if err != nil {
			return "", err
		}
		if failure != "" {
			return "volume " + disk.volume + ": " + failure, nil
		}
		disk.written = true
	}
	return "", nil
}

// copiesEnded says whether no disk is being copied any more, and why the backup failed. Where one disk could not be
// copied the others need not be.
func (m *machine) copiesEnded(b *backing, failure string) (ended bool, why string, err error) {
	jobs, err := m.hv.Jobs()
	if err != nil {
		return false, failure, err
	}
	failure = failureOf(b.disks, jobs, failure)
	ended = true
	for _, disk := range b.disks {
		job, there := jobs[disk.Job]
		if !there || job.Status == hypervisor.JobConcluded {
			continue
		}
		ended = false
		if failure != "" {
			if err := m.hv.CancelJob(disk.Job); err != nil {
				return false, failure, err
			}
		}
	}
	return ended, failure, nil
}

// failureOf is why the copying of disks failed, as far as jobs tell; what is known before, is why the others were ended.
func failureOf(disks []copied, jobs map[string]hypervisor.Job, known string) string {
	if known != "" {
		return known
	}
	failure := ""
	for _, disk := range disks {
		job, there := jobs[disk.Job]
		switch {
		case !there:
			failure = "volume " + disk.volume + ": QEMU has no job that copies the disk"
		case job.Status == hypervisor.JobConcluded && job.Error != "" && (failure == "" || job.Error != cancelled):
			failure = "volume " + disk.volume + ": " + job.Error
		}
	}
	return failure
}

// clearBackup has QEMU forget the jobs, and close the files; of a backup that failed, also what would be recorded
// since. What it does not have any more is no error, so that this can be done again.
func (m *machine) clearBackup(b *backing, failure string) error {
	for _, disk := range b.disks {
		if err := m.hv.DismissJob(disk.Job); err != nil {
			return err
		}
		if err := m.hv.CloseTarget(disk.Target, disk.n); err != nil {
			return err
		}
		if failure != "" && disk.New != "" {
			if err := m.hv.RemoveBitmap(disk.Node, disk.New); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleBitmaps leaves the tracker one record of each disk: the new one, or, after a failure, the former. What
// cannot be removed now goes after the next backup.
func (m *machine) settleBitmaps(b *backing, failure string) {
	for _, disk := range b.disks {
		useless := disk.former
		if failure != "" {
			useless = nil
			if disk.New != "" {
				useless = []string{disk.New}
			}
		}
		for _, bitmap := range useless {
			if err := m.hv.RemoveBitmap(disk.Node, bitmap); err != nil {
				m.log.Warn("Failed to remove a record of what is written to a disk", "volume", disk.volume, "err", err)
			}
		}
	}
}
