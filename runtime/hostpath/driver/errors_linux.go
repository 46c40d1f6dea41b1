package driver

import "golang.org/x/sys/unix"

// errNoSpace is what the layers below wrap when the pool is full.
var errNoSpace error = unix.ENOSPC
