package driver

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// locks keeps calls about one volume apart: one that changes it, or any number that read it.
type locks struct {
	mu   sync.Mutex
	held map[string]int // readers, or changing
}

const changing = -1

// change takes key for one call, or says that another has it.
func (l *locks) change(key string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] != 0 {
		return nil, busy(key)
	}
	l.held[key] = changing
	return func() { l.release(key) }, nil
}

// read takes key for a call that leaves it as it is.
func (l *locks) read(key string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] == changing {
		return nil, busy(key)
	}
	l.held[key]++
	return func() { l.release(key) }, nil
}

func (l *locks) release(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] > 1 {
		l.held[key]--
		return
	}
	delete(l.held, key)
}

func busy(key string) error {
	return status.Errorf(codes.Aborted, "another call about %s is under way: try again", key)
}
