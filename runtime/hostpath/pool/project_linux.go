package pool

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/beneath"
	"github.com/slipway-vm/slipway/runtime/hostpath/quota"
)

// A volume of files is a quota project of its own where the file system has project quotas. Its number is in
// a range that others are not known to use, and begins to be looked for at a hash of the
// volume's name, so that an attempt after a crash finds the number of the one before.
const (
	firstProject    = 0x50000000
	projects        = 0x10000000
	projectAttempts = 1000
)

// choosing keeps two volumes from choosing the same project.
var choosing sync.Mutex //nolint:gochecknoglobals // pools of one file system share its projects

// limit is how much a volume of capacity bytes may take of the file system: what was asked for,
// which may be one disk from end to end, and what the file system needs to keep account of it.
func limit(capacity int64) int64 { return capacity + capacity/64 + 16<<20 }

// restrict makes target, an empty directory, a project that holds no more than capacity. It
// returns the project's number, 0 when the file system has no project quotas, and when the pool is in a
// project already: whoever has limited it so has limited what is in it, and nothing may leave it.
func (p *Pool) restrict(target string, record Record) (uint32, error) {
	dir, err := p.root.Open(target)
	if err != nil {
		return 0, fmt.Errorf("opening %s of pool %s: %w", record.Name, p.name, err)
	}
	defer dir.Close()
	enforced, err := quota.Enforced(dir)
	if err != nil || !enforced {
		return 0, err
	}
	if held, err := quota.Project(dir); err != nil || held != 0 { // it has its parent's
		return 0, err
	}
	choosing.Lock()
	defer choosing.Unlock()
	project, err := freeProject(dir, record.Name)
	if err != nil {
		return 0, fmt.Errorf("limiting %s of pool %s: %w", record.Name, p.name, err)
	}
	if err := errors.Join(quota.Limit(dir, project, limit(record.Capacity)), quota.Assign(dir, project)); err != nil {
		return 0, fmt.Errorf("limiting %s of pool %s: %w", record.Name, p.name, err)
	}
	return project, nil
}

// freeProject returns a project with nothing in it; a limit alone is the rest of a crash.
func freeProject(dir *os.File, name string) (uint32, error) {
	hash := fnv.New32a()
	hash.Write([]byte(name))
	for n := range uint32(projectAttempts) {
		project := firstProject + (hash.Sum32()+n)%projects
		used, err := quota.Of(dir, project)
		if err != nil {
			return 0, err
		}
		if used.Inodes == 0 {
			return project, nil
		}
	}
	return 0, fmt.Errorf("%d quota projects from %d on are in use", projectAttempts, firstProject+hash.Sum32()%projects)
}

// setLimit limits a volume that has a project to capacity; 0: takes its limit away.
func (p *Pool) setLimit(record Record, capacity int64) error {
	if record.Project == 0 {
		return nil
	}
	dir, err := p.root.Open(".")
	if err != nil {
		return fmt.Errorf("opening pool %s: %w", p.name, err)
	}
	defer dir.Close()
	enforced, err := quota.Enforced(dir)
	if err != nil || !enforced { // mounted without quotas meanwhile
		return err
	}
	if capacity > 0 {
		capacity = limit(capacity)
	}
	if err := quota.Limit(dir, record.Project, capacity); err != nil {
		return fmt.Errorf("limiting %s of pool %s: %w", record.Name, p.name, err)
	}
	return nil
}

// removeDraft removes what an attempt to make a volume or snapshot left, with the limit of its project.
func (p *Pool) removeDraft(draft string) error {
	record, err := p.draftProject(draft)
	if err != nil {
		return err
	}
	return errors.Join(p.setLimit(record, 0), p.remove(draft))
}

// draftProject says what project of this package's a draft, or the directory of a volume without a record, has.
func (p *Pool) draftProject(draft string) (Record, error) {
	dir, err := beneath.Open(p.root, draft, os.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("opening %s of pool %s: %w", draft, p.name, err)
	}
	defer dir.Close()
	project, err := quota.Project(dir)
	if err != nil || project < firstProject || project >= firstProject+projects {
		return Record{}, err
	}
	// A pool on a claim of another pool is in that volume's project, whose limit stays when a draft goes.
	around, err := p.around()
	if err != nil || project == around {
		return Record{}, err
	}
	return Record{Name: draft, Project: project}, nil
}

// around is the project that the pool itself is in, 0 when it is in none.
func (p *Pool) around() (uint32, error) {
	dir, err := p.root.Open(".")
	if err != nil {
		return 0, fmt.Errorf("opening pool %s: %w", p.name, err)
	}
	defer dir.Close()
	return quota.Project(dir)
}

// tooSmall says that data of a copy did not fit the limit of record's project, when that is what err is about:
// XFS tells it with the words for a full disk.
func (p *Pool) tooSmall(record Record, err error) error {
	if record.Project == 0 || !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		return err
	}
	dir, openErr := p.root.Open(".")
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	defer dir.Close()
	used, useErr := quota.Of(dir, record.Project)
	if useErr != nil {
		return errors.Join(err, useErr)
	}
	space, spaceErr := p.Space()
	if spaceErr != nil {
		return errors.Join(err, spaceErr)
	}
	if space.Available < used.Limit-used.Bytes { // the file system is full before the volume is
		return err
	}
	return fmt.Errorf("the source holds more than %d bytes: ask for a larger volume: %w (%v)", record.Capacity, ErrTooSmall, err) //nolint:errorlint // it is no full pool
}
