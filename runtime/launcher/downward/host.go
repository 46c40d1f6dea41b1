package downward

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// ticks is the unit of times in /proc/stat, in parts of a second: the kernel's USER_HZ.
const ticks = 100

// hostMetrics are those of the node whose root folder is root. What is not there is left out.
func hostMetrics(root fs.FS) ([]metric, error) {
	var metrics []metric
	var failures error
	for _, read := range []func(fs.FS) ([]metric, error){packages, processorTime, memory, swapping} {
		found, err := read(root)
		metrics, failures = append(metrics, found...), errors.Join(failures, err)
	}
	return metrics, failures
}

var processors = regexp.MustCompile(`^cpu[0-9]+$`)

// packages counts the node's processors as one buys them. One that is switched off tells of none.
func packages(root fs.FS) ([]metric, error) {
	const folder = "sys/devices/system/cpu"
	entries, err := fs.ReadDir(root, folder)
	if err != nil {
		return nil, fmt.Errorf("counting the node's processors: %w", err)
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		if !processors.MatchString(entry.Name()) {
			continue
		}
		id, err := fs.ReadFile(root, path.Join(folder, entry.Name(), "topology/physical_package_id"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("counting the node's processors: %w", err)
		}
		seen[string(bytes.TrimSpace(id))] = true
	}
	return []metric{signed("NumberOfPhysicalCPUs", "", int64(len(seen)))}, nil
}

// processorTime is how long the node's processors worked.
func processorTime(root fs.FS) ([]metric, error) {
	all, err := numbers(root, "proc/stat")
	if err != nil {
		return nil, err
	}
	times := all["cpu"]
	if len(times) < 3 {
		return nil, errors.New("reading the node's /proc/stat: there is no line of all processors")
	}
	worked := times[0] + times[1] + times[2] // for users, for users with low priority, in the kernel
	return []metric{fraction(ofHost, "TotalCPUTime", seconds, float64(worked)/ticks)}, nil
}

// memory is how the node's memory and swap are used.
func memory(root fs.FS) ([]metric, error) {
	all, err := numbers(root, "proc/meminfo")
	if err != nil {
		return nil, err
	}
	of := func(name string) uint64 { return first(all, name+":") }
	free, cached := of("MemFree"), of("Buffers")+of("Cached")
	return []metric{
		whole(ofHost, "FreePhysicalMemory", kibibytes, free),
		whole(ofHost, "FreeVirtualMemory", kibibytes, free+of("SwapFree")),
		whole(ofHost, "MemoryAllocatedToVirtualServers", kibibytes, less(of("MemTotal"), free+cached)),
		whole(ofHost, "UsedVirtualMemory", kibibytes, less(of("MemTotal")+of("SwapTotal"), free+cached+of("SwapCached"))),
	}, nil
}

// swapping is how much went to and came from the node's swap since it was started.
func swapping(root fs.FS) ([]metric, error) {
	all, err := numbers(root, "proc/vmstat")
	if err != nil {
		return nil, err
	}
	page := uint64(os.Getpagesize()) >> 10 //nolint:gosec // positive
	return []metric{
		whole(ofHost, "PagedInMemory", kibibytes, first(all, "pswpin")*page),
		whole(ofHost, "PagedOutMemory", kibibytes, first(all, "pswpout")*page),
	}, nil
}

// less is a difference of counters that are not read at one moment.
func less(from, what uint64) uint64 {
	if what > from {
		return 0
	}
	return from - what
}

func first(all map[string][]uint64, name string) uint64 {
	if len(all[name]) == 0 {
		return 0
	}
	return all[name][0]
}

// numbers reads a file of lines with a name and numbers, such as those of /proc. A line ends for it
// at the first word that is no number.
func numbers(root fs.FS, file string) (map[string][]uint64, error) {
	content, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, fmt.Errorf("reading the node's /%s: %w", file, err)
	}
	all := map[string][]uint64{}
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		for _, word := range words[1:] {
			number, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				break
			}
			all[words[0]] = append(all[words[0]], number)
		}
	}
	return all, nil
}
