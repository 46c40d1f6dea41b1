package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/slipway-vm/slipway/runtime/hostpath/quota"
)

// maxDirectoryName is the longest name of a directory that Linux has, in bytes.
const maxDirectoryName = 255

// MakeDirectory makes the directory called name, which holds no more than capacity bytes where the file
// system has project quotas. Nothing is recorded of it: so the driver before this one kept its
// volumes, whose names may be longer than those of volumes. One that is there already is no error.
func (p *Pool) MakeDirectory(name string, capacity int64) error {
	if err := checkDirectory(name); err != nil {
		return err
	}
	record := Record{Name: name, Capacity: capacity}
	info, err := p.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = p.makeDirectory(name, &record, true)
	case err != nil:
		err = fmt.Errorf("reading the directory %s of pool %s: %w", name, p.name, err)
	case !info.IsDir():
		err = fmt.Errorf("making the directory %s of pool %s: something else has its name: remove it", name, p.name)
	default:
		err = p.limitAgain(name, capacity) // a crash may have come before
	}
	if err != nil {
		return err
	}
	if !record.Subvolume {
		if _, err := p.restrict(name, record); err != nil {
			return err
		}
	}
	if err := p.root.Chmod(name, 0o777); err != nil {
		return fmt.Errorf("opening the directory %s of pool %s to its users: %w", name, p.name, err)
	}
	return errors.Join(p.sync(name), p.sync("."))
}

// RemoveDirectory removes the directory called name with all that is in it. One that is not there is no error.
func (p *Pool) RemoveDirectory(name string) error {
	if err := checkDirectory(name); err != nil {
		return err
	}
	info, err := p.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the directory %s of pool %s: %w", name, p.name, err)
	}
	var held Record
	if info.IsDir() { // and not a link to one
		if held, err = p.draftProject(name); err != nil {
			return err
		}
	}
	if err := p.remove(name); err != nil {
		return err
	}
	return errors.Join(p.sync("."), p.release(held))
}

// release takes the limit of a project away when nothing is in it any more.
func (p *Pool) release(held Record) error {
	if held.Project == 0 {
		return nil
	}
	choosing.Lock()
	defer choosing.Unlock()
	dir, err := p.root.Open(".")
	if err != nil {
		return fmt.Errorf("opening pool %s: %w", p.name, err)
	}
	defer dir.Close()
	used, err := quota.Of(dir, held.Project)
	if err != nil || used.Inodes > 0 { // another's: its user may have chosen it for this one, too
		return err
	}
	return p.setLimit(held, 0)
}

func checkDirectory(name string) error {
	if name == "" || len(name) > maxDirectoryName || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q cannot be the name of a volume's directory: it may have at most %d bytes, no / and no dot at its beginning", name, maxDirectoryName)
	}
	return nil
}
