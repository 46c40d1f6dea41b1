package main

import (
	"fmt"
	"os"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// dump says what is in the folder that came. The dump goes on until there is a file "dumped" beside
// the socket.
func (l *launcher) dump(request wire.Request) (any, error) {
	var wanted protocol.MemoryDump
	if err := request.Decode(&wanted); err != nil {
		return nil, err
	}
	for _, folder := range request.Files {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", folder.Fd()))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			fmt.Println("dump", wanted.Volume, "with", entry.Name())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Dumps = []protocol.Dump{{Volume: wanted.Volume, File: wanted.File, Began: time.Now()}}
	go l.endDump()
	return l.state, nil
}

func (l *launcher) endDump() {
	for {
		if _, err := os.Stat("dumped"); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	dump, now := l.state.Dumps[0], time.Now()
	dump.Ended = &now
	l.state.Dumps = []protocol.Dump{dump}
	if err := l.conn.Notify(protocol.TypeState, l.state); err != nil {
		fmt.Println("telling of the dump:", err)
	}
}
