package pool

import (
	"errors"
	"fmt"
	"path"

	"github.com/slipway-vm/slipway/runtime/hostpath/quota"
)

// makeDirectory makes target, the directory of files that hold no more than capacity bytes; 0: as much as there is. On
// btrfs a limited one is a subvolume, which record then says, where the file system has quotas; what has projects
// is restricted later, by restrict.
func (p *Pool) makeDirectory(target string, record *Record, limited bool) error {
	if limited {
		made, err := p.makeSubvolume(target, record.Capacity)
		if made || err != nil {
			record.Subvolume = made
			return err
		}
	}
	if err := p.root.Mkdir(target, 0o700); err != nil {
		return fmt.Errorf("making %s of pool %s: %w", record.Name, p.name, err)
	}
	return nil
}

// makeSubvolume makes target a subvolume that holds no more than capacity bytes, and returns false where there is
// no such thing, or nobody enabled quotas, or the pool is in a limited subvolume itself, which a further one would not count in.
func (p *Pool) makeSubvolume(target string, capacity int64) (bool, error) {
	dir, err := p.root.Open(path.Dir(target))
	if err != nil {
		return false, fmt.Errorf("opening %s of pool %s: %w", path.Dir(target), p.name, err)
	}
	defer dir.Close()
	if can, err := quota.OnBtrfs(dir); err != nil || !can {
		return false, err
	}
	if within, err := p.isLimited(); err != nil || within {
		return false, err
	}
	if err := quota.MakeSubvolume(dir, path.Base(target)); err != nil {
		return false, fmt.Errorf("making %s of pool %s: %w", target, p.name, err)
	}
	err = p.limitSubvolume(target, capacity)
	if err == nil {
		return true, p.chmodPrivate(target)
	}
	removed := p.remove(target)
	if errors.Is(err, quota.ErrNotEnabled) {
		return false, removed
	}
	return false, errors.Join(err, removed)
}

// isLimited tells whether the pool is a limited volume on btrfs, as one on a claim of another pool may be.
func (p *Pool) isLimited() (bool, error) {
	dir, err := p.root.Open(".")
	if err != nil {
		return false, fmt.Errorf("opening pool %s: %w", p.name, err)
	}
	defer dir.Close()
	limited, err := quota.IsLimited(dir)
	if err != nil {
		return false, fmt.Errorf("asking whether pool %s is limited: %w", p.name, err)
	}
	return limited, nil
}

// limitSubvolume lets the subvolume name hold capacity bytes.
func (p *Pool) limitSubvolume(name string, capacity int64) error {
	dir, err := p.root.Open(name)
	if err != nil {
		return fmt.Errorf("opening %s of pool %s: %w", name, p.name, err)
	}
	defer dir.Close()
	if err := quota.LimitSubvolume(dir, limit(capacity)); err != nil {
		return fmt.Errorf("limiting %s of pool %s: %w", name, p.name, err)
	}
	return nil
}

// limitAgain is limitSubvolume for what exists, which nothing is done to when it is no subvolume, or when quotas were disabled meanwhile.
func (p *Pool) limitAgain(name string, capacity int64) error {
	err := p.limitSubvolume(name, capacity)
	if errors.Is(err, quota.ErrNotEnabled) || errors.Is(err, quota.ErrNoSubvolume) {
		return nil
	}
	return err
}

// chmodPrivate closes a directory to all but root, as a new one is until it is complete.
func (p *Pool) chmodPrivate(name string) error {
	if err := p.root.Chmod(name, 0o700); err != nil {
		return fmt.Errorf("closing %s of pool %s: %w", name, p.name, err)
	}
	return nil
}
