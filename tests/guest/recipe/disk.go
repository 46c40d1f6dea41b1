package recipe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/images/debian"
)

// hasty tells a kernel to skip what costs seconds under emulation: checks of algorithms that nobody uses, tracing, profiles of programs.
const hasty = "nokaslr mitigations=off random.trust_cpu=on no_timer_check cryptomgr.notests apparmor=0 " +
	"initcall_blacklist=crypto_kdf108_init,jent_mod_init,init_encrypted,trace_eval_init,init_kprobe_trace"

// bootConfig is the boot loader's configuration. The kernel starts one processor; the guest starts the others when the drivers have mapped
// their devices: what another processor writes to its interrupt controller meanwhile gets lost in QEMU's emulator, rarely, and on a busy host. Time comes
// from the ACPI timer, whose rate is fixed: that of the processor's counter has to be measured, and comes out too low by tens of times
// where the emulator got no processor meanwhile, so that the guest's time flies.
const bootConfig = `PROMPT 0
TIMEOUT 0
DEFAULT linux
LABEL linux
	LINUX /vmlinuz
	INITRD /initrd
	APPEND console=tty0 console=ttyS0,115200 quiet loglevel=4 panic=10 maxcpus=1 clocksource=acpi_pm tsc=unstable rcupdate.rcu_expedited=1 ` + hasty + `
`

const (
	sector = 512
	// partitionStart is where the only partition begins, in bytes.
	partitionStart = 1 << 20
	mbrCode        = "/usr/lib/syslinux/mbr/mbr.bin"
)

func requireDiskTools(ctx context.Context) error {
	return debian.Require(ctx, map[string]string{
		"/usr/bin/mcopy": "mtools", "/usr/sbin/mkfs.vfat": "dosfstools", "/usr/bin/syslinux": "syslinux", mbrCode: "syslinux-common", "/usr/sbin/mke2fs": "e2fsprogs",
		"/usr/bin/qemu-img": "qemu-utils", "/usr/bin/dpkg-deb": "dpkg",
	})
}

// bootFiles are what a BIOS's boot loader reads.
type bootFiles struct {
	kernel, initramfs string
	// config is the boot loader's configuration.
	config string
}

// bootDisk makes a qcow2 disk with one FAT partition that a BIOS starts kernel and initramfs from. No device and no root is needed.
func bootDisk(ctx context.Context, s scratch, boot bootFiles, disk string) error {
	size, err := contentSize(boot.kernel, boot.initramfs)
	if err != nil {
		return err
	}
	// FAT's own structures and the boot loader take less than 3 MiB.
	partition := (size/(1<<20) + 4) << 20
	raw := filepath.Join(s.work, "disk.raw")
	if err := writePartitionTable(raw, partition, 0); err != nil {
		return err
	}
	if err := fillBootPartition(ctx, s, boot, raw, partition); err != nil {
		return err
	}
	return s.convert(ctx, raw, disk)
}

// rootedDisk makes a qcow2 disk of size bytes with a FAT partition to start from and an ext4 partition with the content of the folder root.
func rootedDisk(ctx context.Context, s scratch, boot bootFiles, root, disk string, size int64) error {
	const bootPartition = 40 << 20
	const start = partitionStart + bootPartition
	raw := filepath.Join(s.work, "disk.raw")
	if err := writePartitionTable(raw, bootPartition, size-start); err != nil {
		return err
	}
	if err := fillBootPartition(ctx, s, boot, raw, bootPartition); err != nil {
		return err
	}
	blocks := (size - start) / 4096
	if err := s.run(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-L", "root", "-U", debianRootUUID, "-m", "1",
		"-E", fmt.Sprintf("offset=%d,hash_seed=%s,root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1", start, debianRootUUID),
		"-d", root, raw, fmt.Sprint(blocks)); err != nil {
		return fmt.Errorf("making the root file system: %w", err)
	}
	return s.convert(ctx, raw, disk)
}

func (s scratch) convert(ctx context.Context, raw, disk string) error {
	if err := s.run(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk); err != nil {
		return fmt.Errorf("making the disk: %w", err)
	}
	return nil
}

func fillBootPartition(ctx context.Context, s scratch, boot bootFiles, raw string, partition int64) error {
	config := filepath.Join(s.work, "syslinux.cfg")
	if err := os.WriteFile(config, []byte(boot.config), 0o644); err != nil {
		return fmt.Errorf("writing the boot configuration: %w", err)
	}
	at := fmt.Sprintf("%s@@%d", raw, partitionStart)
	for _, f := range []string{boot.kernel, boot.initramfs, config} {
		if err := os.Chtimes(f, s.lock.Resolved, s.lock.Resolved); err != nil {
			return fmt.Errorf("setting the time of %s: %w", f, err)
		}
	}
	steps := [][]string{
		{"mkfs.vfat", "--invariant", "-F", "16", "-i", "51195a71", "-n", "BOOT", "-h", fmt.Sprint(partitionStart / sector), "--offset", fmt.Sprint(partitionStart / sector), raw, fmt.Sprint(partition / 1024)},
		{"syslinux", "--install", "--offset", fmt.Sprint(partitionStart), raw},
		{"mcopy", "-m", "-i", at, boot.kernel, "::vmlinuz"},
		{"mcopy", "-m", "-i", at, boot.initramfs, "::initrd"},
		{"mcopy", "-m", "-i", at, config, "::syslinux.cfg"},
	}
	for _, step := range steps {
		if err := s.run(ctx, step[0], step[1:]...); err != nil {
			return fmt.Errorf("making the boot partition: %w", err)
		}
	}
	return nil
}

func contentSize(files ...string) (int64, error) {
	var n int64
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			return 0, fmt.Errorf("measuring the disk: %w", err)
		}
		n += st.Size()
	}
	return n, nil
}

// writePartitionTable makes a raw disk with the boot loader's first stage, one active FAT partition of boot bytes and, unless root is 0,
// a Linux partition of root bytes behind it.
func writePartitionTable(raw string, boot, root int64) error {
	mbr := make([]byte, sector)
	code, err := os.ReadFile(mbrCode)
	if err != nil {
		return fmt.Errorf("reading the boot code: %w", err)
	}
	if len(code) > 440 {
		return fmt.Errorf("boot code %s has %d bytes, 440 are allowed", mbrCode, len(code))
	}
	copy(mbr, code)
	binary.LittleEndian.PutUint32(mbr[440:], 0x51195a70)
	putPartition(mbr[446:], 0x80, 0x0e, partitionStart, boot)
	if root > 0 {
		putPartition(mbr[462:], 0, 0x83, partitionStart+boot, root)
	}
	mbr[510], mbr[511] = 0x55, 0xaa
	f, err := os.Create(raw)
	if err != nil {
		return fmt.Errorf("making the disk: %w", err)
	}
	_, err = f.Write(mbr)
	if err = errors.Join(err, f.Truncate(partitionStart+boot+root), f.Close()); err != nil {
		return fmt.Errorf("making the disk: %w", err)
	}
	return nil
}

// putPartition fills a partition table entry; start and size are in bytes, and addresses by cylinder are left at their end.
func putPartition(entry []byte, flag, kind byte, start, size int64) {
	entry[0], entry[4] = flag, kind
	copy(entry[1:4], []byte{0xfe, 0xff, 0xff})
	copy(entry[5:8], []byte{0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(entry[8:], uint32(start/sector))
	binary.LittleEndian.PutUint32(entry[12:], uint32(size/sector))
}
