package pool_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
	"github.com/slipway-vm/slipway/runtime/hostpath/quota"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// TestAProjectGoesWithItsOwnDraftAlone shows which limit goes with a draft, also where the kernel only keeps the numbers of projects.
func TestAProjectGoesWithItsOwnDraftAlone(t *testing.T) {
	need.Root(t, "mount")
	dir, _ := mounted(t, "xfs", []string{need.Program(t, "mkfs.xfs", "xfsprogs"), "-q"})
	const first = 0x50000000
	const draft = ".slipway/new/crashed"
	goes := func(in string, want uint32) {
		t.Helper()
		p, err := pool.Open("/", "p", in)
		check(t, err)
		defer p.Close()
		if got, err := p.DraftProject(draft); err != nil || got != want {
			t.Errorf("with the draft goes project %#x, %v, want %#x", got, err, want)
		}
	}
	check(t, os.MkdirAll(filepath.Join(dir, draft), 0o700))
	assign(t, filepath.Join(dir, draft), first+1)
	goes(dir, first+1)

	claim := filepath.Join(dir, "claim") // of another pool, which lies on this volume
	check(t, os.Mkdir(claim, 0o700))
	assign(t, claim, first+2)
	check(t, os.MkdirAll(filepath.Join(claim, draft), 0o700))
	if got := projectOf(t, filepath.Join(claim, draft)); got != first+2 {
		t.Fatalf("the draft is in project %#x, not in that of the volume around it", got)
	}
	goes(claim, 0)
}

func assign(t *testing.T, path string, project uint32) {
	t.Helper()
	dir, err := os.Open(path)
	check(t, err)
	defer dir.Close()
	check(t, quota.Assign(dir, project))
}

func projectOf(t *testing.T, path string) uint32 {
	t.Helper()
	dir, err := os.Open(path)
	check(t, err)
	defer dir.Close()
	project, err := quota.Project(dir)
	check(t, err)
	return project
}
