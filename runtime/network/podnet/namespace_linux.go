package podnet

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netns"
)

// within runs act on a thread that is in the network namespace ns.
func within(ns *os.File, act func() error) error {
	done := make(chan error, 1)
	go func() { done <- inNamespace(ns, act) }()
	return <-done
}

func inNamespace(ns *os.File, act func() error) error {
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("opening the own network namespace: %w", err)
	}
	defer own.Close()
	if err := netns.Set(netns.NsHandle(ns.Fd())); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering the pod's network namespace: %w", err)
	}
	actErr := act()
	if err := netns.Set(own); err != nil {
		// The thread stays locked and ends with this goroutine: it must not serve others.
		return errors.Join(actErr, fmt.Errorf("leaving the pod's network namespace: %w", err))
	}
	runtime.UnlockOSThread()
	return actErr
}
