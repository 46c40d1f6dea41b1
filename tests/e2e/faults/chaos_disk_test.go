//go:build e2e

package faults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

func inInstall() client.ListOption { return client.InNamespace(names.InstallNamespace) }

// recordSize is that of a record: its number, the guest's boot, and a checksum over both and
// the record before.
const recordSize = 8 + 1 + 36 + 1 + 64 + 1

// writer is a guest's script: it appends records to a log, makes each durable and only then
// tells of it. What a crash cut off within the last record goes at the next boot.
func writer(vm, url string) string {
	return fmt.Sprintf(`#!/bin/sh
exec >/dev/console 2>&1
mkdir -p /data
mount -t ext4 /dev/vdb /data || { echo "chaos: the disk cannot be mounted"; exit 1; }
boot=$(cat /proc/sys/kernel/random/boot_id)
(
	cd /data
	touch log
	n=$(($(stat -c %%s log) / %[3]d))
	truncate -s $((n * %[3]d)) log
	last=$(tail -c 65 log | tr -d '\n')
	while :; do
		n=$((n + 1))
		sum=$(echo "$n $boot $last" | sha256sum | cut -c 1-64)
		printf '%%08d %%s %%s\n' $n $boot $sum | dd of=log bs=4096 oflag=append conv=notrunc,fsync 2>/run/dd || { cat /run/dd; echo "chaos: record $n cannot be written"; exit 1; }
		last=$sum
		wget -q -T 5 -O /dev/null "%[2]s/ack?vm=%[1]s&n=$n&sum=$sum"
		sleep 0.2
	done
) &
`, vm, url, recordSize)
}

// acknowledged are the records that guests said to be durable.
type acknowledged struct {
	url string

	mu    sync.Mutex
	sums  map[string]map[int]string // by VM and number
	last  map[string]time.Time
	fresh chan struct{}
}

func acknowledge(ctx context.Context) *acknowledged {
	GinkgoHelper()
	a := &acknowledged{sums: map[string]map[int]string{}, last: map[string]time.Time{}, fresh: make(chan struct{})}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	var err error
	a.url, err = suite.World.Serve(serving, http.HandlerFunc(a.take))
	Expect(err).NotTo(HaveOccurred())
	return a
}

func (a *acknowledged) take(w http.ResponseWriter, r *http.Request) {
	vm, sum := r.FormValue("vm"), r.FormValue("sum")
	n, err := strconv.Atoi(r.FormValue("n"))
	if err != nil || vm == "" || len(sum) != 64 {
		http.Error(w, "this is no record", http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sums[vm] == nil {
		a.sums[vm] = map[int]string{}
	}
	a.sums[vm][n] = sum
	a.last[vm] = time.Now()
	close(a.fresh)
	a.fresh = make(chan struct{})
}

// await waits until the VM told of a record after since.
func (a *acknowledged) await(ctx context.Context, vm string, since time.Time, bound time.Duration) {
	GinkgoHelper()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for {
		a.mu.Lock()
		last, fresh := a.last[vm], a.fresh
		a.mu.Unlock()
		if last.After(since) {
			return
		}
		select {
		case <-ctx.Done():
			Fail("the time of the test is over")
		case <-timer.C:
			Fail(fmt.Sprintf("the guest of VM %s made no record durable within %s; the last was at %s", vm, bound, last))
		case <-fresh:
		}
	}
}

// check compares a VM's log, as it is now, with what its guests said to be durable.
func (a *acknowledged) check(vm, log string) {
	GinkgoHelper()
	records := strings.Split(strings.TrimSpace(log), "\n")
	a.mu.Lock()
	defer a.mu.Unlock()
	boots, boot, last, good := map[string]bool{}, "", "", 0
	for i, record := range records {
		fields := strings.Fields(record)
		if len(fields) != 3 && i == len(records)-1 {
			break // being written
		}
		Expect(fields).To(HaveLen(3), "record %d of VM %s: %q", i+1, vm, record)
		Expect(fields[0]).To(Equal(fmt.Sprintf("%08d", i+1)), "the number of a record of VM %s", vm)
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s\n", i+1, fields[1], last))
		Expect(fields[2]).To(Equal(hex.EncodeToString(sum[:])), "the checksum of record %d of VM %s", i+1, vm)
		if told, ok := a.sums[vm][i+1]; ok {
			Expect(fields[2]).To(Equal(told), "record %d of VM %s is another than the one that was durable", i+1, vm)
		}
		if fields[1] != boot {
			Expect(boots).NotTo(HaveKey(fields[1]), "two guests of VM %s wrote at the same time", vm)
			boot = fields[1]
			boots[boot] = true
		}
		last, good = fields[2], i+1
	}
	for n := range a.sums[vm] {
		Expect(n).To(BeNumerically("<=", good), "record %d of VM %s was durable and is lost", n, vm)
	}
	GinkgoWriter.Printf("VM %s: %d records of %d boots, %d of them acknowledged\n", vm, good, len(boots), len(a.sums[vm]))
}

// checkLogs checks the logs of all VMs and asks the guests' kernels of their file systems.
func (c *chaos) checkLogs(ctx context.Context) {
	GinkgoHelper()
	for _, vm := range c.vms {
		vmi := suite.RunningVMI(ctx, c.ns, vm.name)
		c.acks.check(vm.name, suite.Shell(ctx, vmi, "cat /data/log"))
		Expect(suite.Shell(ctx, vmi, `grep " /data " /proc/mounts`)).To(ContainSubstring(" rw,"), "the disk of VM %s can be written", vm.name)
		Expect(suite.Shell(ctx, vmi, `dmesg | grep -iE "ext4-fs (error|warning)|i/o error" || true`)).To(BeEmpty(), "errors in the guest of VM %s", vm.name)
	}
}

// serveDisk makes a disk with a file system that stops at its first error, and returns its URL.
func serveDisk(ctx context.Context) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	disk := filepath.Join(dir, "disk.raw")
	out, err := exec.CommandContext(ctx, "/usr/sbin/mke2fs", "-q", "-t", "ext4", "-e", "remount-ro", disk, "64M").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "making a file system: %s", out)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, err := suite.World.Serve(serving, http.FileServer(http.Dir(dir)))
	Expect(err).NotTo(HaveOccurred())
	return root + "/disk.raw"
}

// diskFile finds the file on the node in which a claim's disk is.
func diskFile(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	claim := &corev1.PersistentVolumeClaim{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim)).To(Succeed())
	volume := &corev1.PersistentVolume{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume)).To(Succeed())
	found := ""
	err := filepath.WalkDir(suite.World.Local.PoolPath, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != volume.Spec.CSI.VolumeHandle {
			return err
		}
		found = path
		if entry.IsDir() {
			found = filepath.Join(path, names.DiskFile)
		}
		return filepath.SkipAll
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeARegularFile(), "the disk of claim %s (volume %s)", name, volume.Spec.CSI.VolumeHandle)
	return found
}

// checkFileSystem looks at the file system on a disk that nobody uses any more.
func checkFileSystem(ctx context.Context, disk string) {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "/usr/sbin/e2fsck", "-f", "-n", disk).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "checking the file system on %s: %s", disk, out)
}

// doublesPatience is how long a QEMU may have a disk open that it is being refused, where it has to wait for a processor to be told so.
const doublesPatience = 30 * time.Second

// doubles are pairs of QEMUs with the same disk open for writing.
type doubles struct {
	mu    sync.Mutex
	found []string
}

// watchDoubles looks for them several times a second, to the end of the test.
func watchDoubles(ctx context.Context, namespace string) *doubles {
	d := &doubles{}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	DeferCleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		since := map[string]time.Time{}
		for {
			select {
			case <-watching.Done():
				return
			case <-ticker.C:
				since = d.look(namespace, since)
			}
		}
	}()
	return d
}

// look notes the disks that two QEMUs have had open for too long, and returns since when which
// disk has been open twice.
func (d *doubles) look(namespace string, since map[string]time.Time) map[string]time.Time {
	users := map[string][]process{}
	for _, p := range processes(func(string) bool { return true }) {
		if strings.HasPrefix(p.program(), "qemu-system") && strings.Contains(p.line, "guest="+namespace+"_") {
			for disk := range written(p.pid) {
				users[disk] = append(users[disk], p)
			}
		}
	}
	still := map[string]time.Time{}
	for disk, by := range users {
		if len(by) < 2 {
			continue
		}
		still[disk] = time.Now()
		if begun, known := since[disk]; known {
			still[disk] = begun
		}
		if time.Since(still[disk]) > doublesPatience {
			d.mu.Lock()
			d.found = append(d.found, fmt.Sprintf("disk %s is open in %+v", disk, by))
			d.mu.Unlock()
		}
	}
	return still
}

// written are the files and devices that a process has open for writing, but no character devices.
func written(pid int) map[string]bool {
	found := map[string]bool{}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		var stat syscall.Stat_t
		info, err := os.ReadFile(filepath.Join(dir, "fdinfo", entry.Name()))
		if err != nil || !forWriting(string(info)) || syscall.Stat(filepath.Join(dir, "fd", entry.Name()), &stat) != nil {
			continue
		}
		switch stat.Mode & syscall.S_IFMT {
		case syscall.S_IFBLK:
			found[fmt.Sprintf("device %d", stat.Rdev)] = true
		case syscall.S_IFREG:
			found[fmt.Sprintf("file %d on %d", stat.Ino, stat.Dev)] = true
		}
	}
	return found
}

// forWriting reads the flags of an open file.
func forWriting(info string) bool {
	for line := range strings.Lines(info) {
		if octal, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseInt(strings.TrimSpace(octal), 8, 64)
			return err == nil && flags&syscall.O_ACCMODE != syscall.O_RDONLY
		}
	}
	return false
}

func (d *doubles) expectNone() {
	GinkgoHelper()
	d.mu.Lock()
	defer d.mu.Unlock()
	Expect(d.found).To(BeEmpty(), "two QEMUs on one disk")
}
