package hostpath

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

func TestOnlyOneProcessServesANode(t *testing.T) {
	folder := t.TempDir()
	release, err := alone(t.Context(), folder, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := alone(waiting, folder, logr.Discard()); err == nil {
		t.Fatal("two serve at once")
	}
	next := make(chan error)
	go func() {
		release, err := alone(t.Context(), folder, logr.Discard())
		if err == nil {
			release()
		}
		next <- err
	}()
	release()
	select {
	case err := <-next:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the next one waits although the first is gone")
	}
}
