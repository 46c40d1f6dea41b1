// Package qemulog finds in the log of a domain what QEMU said before it ended. Libvirt writes into
// that file, too: a line of its own about each start and end, and QEMU's whole command.
package qemulog

import (
	"bufio"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

const (
	// lines and length bound the last words. A Kubernetes event holds 1024 bytes, with the sentence before them.
	lines  = 6
	length = 800
	// lineLength is how much of a line is read, in bytes.
	lineLength = 4096
)

// commandEnd is the end of every command of libvirt's for QEMU, a line of its own in the log. The
// command may name what is nobody's business; QEMU's words begin behind it.
const commandEnd = "-msg timestamp=on"

var (
	ofLibvirt = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+0000: `)
	qemusTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z `)
	// objects are quoted in errors about the command; some are secrets.
	objects = regexp.MustCompile(`-object (\{.*\}|\S+)`)
)

// LastWords returns the last that QEMU said since its last start; empty when it said nothing, or
// the log cannot be read. QEMU, which its guest may have taken over, can write to the folder: name leads
// to nowhere outside of dir, and only a plain file is read.
func LastWords(dir, name string) string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer func() { _ = root.Close() }()
	named, err := root.Lstat(name)
	if err != nil || !named.Mode().IsRegular() {
		return ""
	}
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if opened, err := file.Stat(); err != nil || !os.SameFile(named, opened) {
		return ""
	}
	return lastWords(file)
}

func lastWords(log io.Reader) string {
	var said []string
	began := false
	reader := bufio.NewReaderSize(log, lineLength)
	for rest := false; ; {
		read, more, err := reader.ReadLine()
		if err != nil {
			break
		}
		beginning := !rest
		if rest = more; !beginning {
			continue
		}
		line := string(read)
		if line == commandEnd {
			began, said = true, nil
			continue
		}
		if line = plain(line); !began || line == "" || len(said) > 0 && said[len(said)-1] == line {
			continue
		}
		if said = append(said, line); len(said) > lines {
			said = said[1:]
		}
	}
	words := strings.Join(said, "; ")
	if over := len(words) - length; over > 0 {
		words = "…" + strings.ToValidUTF8(words[over+len("…"):], "")
	}
	return words
}

// plain is a line of QEMU's without its time, objects and control characters; empty for one of libvirt's.
func plain(line string) string {
	if ofLibvirt.MatchString(line) {
		return ""
	}
	line = objects.ReplaceAllString(qemusTime.ReplaceAllString(line, ""), "-object …")
	line = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, line)
	if line = strings.TrimSpace(line); line == "**" { // GLib's, before each failed assertion
		return ""
	}
	return line
}
