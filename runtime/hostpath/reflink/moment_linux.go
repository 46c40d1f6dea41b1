package reflink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// ErrChanged says that what was copied byte for byte was written to meanwhile: the copy is of no moment that there was, which no file
// system inside bears, as it would a power failure.
var ErrChanged = errors.New("it was written to while it was copied")

// moment is what of a file changes with its data.
type moment struct {
	written time.Time
	size    int64
}

func momentOf(info fs.FileInfo) moment {
	if info.IsDir() {
		return moment{written: info.ModTime()} // whose size is the file system's own business
	}
	return moment{info.ModTime(), info.Size()}
}

// tick is more than passes between two times that the kernel gives to what is written.
const tick = 25 * time.Millisecond

// settled returns the moment of file, once whatever is written to it from then on shows in that.
func settled(ctx context.Context, file *os.File) (moment, error) {
	for range 40 {
		info, err := file.Stat()
		if err != nil {
			return moment{}, fmt.Errorf("looking at %s: %w", file.Name(), err)
		}
		if age := time.Since(info.ModTime()); age > tick || age < -tick {
			return momentOf(info), nil
		}
		select {
		case <-ctx.Done():
			return moment{}, fmt.Errorf("copying %s: %w", file.Name(), ctx.Err())
		case <-time.After(tick): // of nothing else would anybody tell
		}
	}
	return moment{}, fmt.Errorf("copying %s: %w", file.Name(), ErrChanged)
}

// compare returns ErrChanged where info is of another moment.
func (m moment) compare(name string, info fs.FileInfo) error {
	if now := momentOf(info); !now.written.Equal(m.written) || now.size != m.size {
		return fmt.Errorf("copying %s: %w", name, ErrChanged)
	}
	return nil
}
