package wire

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// rights encodes files as ancillary data of a unix socket's message.
func rights(files []*os.File) []byte {
	if len(files) == 0 {
		return nil
	}
	fds := make([]int, len(files))
	for i, file := range files {
		fds[i] = int(file.Fd())
	}
	return unix.UnixRights(fds...)
}

// readWithFiles fills buffer and returns the files that came with its bytes, also
// when it fails.
func readWithFiles(socket *net.UnixConn, buffer []byte) ([]*os.File, error) {
	var files []*os.File
	for read := 0; read < len(buffer); {
		oob := make([]byte, unix.CmsgSpace(4*maxFiles))
		n, oobn, flags, _, err := socket.ReadMsgUnix(buffer[read:], oob)
		received, parseErr := parseRights(oob[:oobn])
		files = append(files, received...)
		switch {
		case err != nil:
			return files, err //nolint:wrapcheck // Serve says what it was reading
		case parseErr != nil:
			return files, parseErr
		case flags&unix.MSG_CTRUNC != 0:
			return files, fmt.Errorf("more than %d files came with one frame", maxFiles)
		case n == 0 && read == 0:
			return files, io.EOF
		case n == 0:
			return files, io.ErrUnexpectedEOF
		}
		read += n
	}
	return files, nil
}

func parseRights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parsing control message: %w", err)
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // another kind of control message
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

func peerCredentials(socket *net.UnixConn) (*syscall.Ucred, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	var credentials *syscall.Ucred
	var getErr error
	if err := raw.Control(func(fd uintptr) {
		credentials, getErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	if getErr != nil {
		return nil, fmt.Errorf("asking for the peer's credentials: %w", getErr)
	}
	return credentials, nil
}
