package windows

import (
	"context"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
)

const (
	sector = 512
	// partitionStart is where the only partition begins, in bytes.
	partitionStart = 1 << 20
	// stub is the EFI program that starts the kernel in its own sections.
	stub = "usr/lib/systemd/boot/efi/linuxx64.efi.stub"
	// page is what an EFI program's sections are aligned to.
	page = 4096
)

// bootVolume is a FAT volume that EFI boots: the kernel, told its role.
func (b builder) bootVolume(ctx context.Context, role string) ([]byte, error) {
	efi := filepath.Join(b.dir, role+".efi")
	if err := b.join(ctx, efi, role); err != nil {
		return nil, err
	}
	info, err := os.Stat(efi)
	if err != nil {
		return nil, fmt.Errorf("measuring the boot program: %w", err)
	}
	volume := filepath.Join(b.dir, role+".fat")
	blocks := (info.Size()>>20 + 2) << 10 // of 1 KiB
	if err := b.run(ctx, "mkfs.vfat", "--invariant", "-F", "16", "-n", "BOOT", "-C", volume, fmt.Sprint(blocks)); err != nil {
		return nil, err
	}
	for _, step := range [][]string{{"mmd", "-i", volume, "::EFI", "::EFI/BOOT"}, {"mcopy", "-i", volume, efi, "::EFI/BOOT/BOOTX64.EFI"}} {
		if err := b.run(ctx, step[0], step[1:]...); err != nil {
			return nil, err
		}
	}
	return os.ReadFile(volume)
}

// join makes one EFI program of the stub, the kernel, its arguments and the initrd.
func (b builder) join(ctx context.Context, path, role string) error {
	kernel, err := filepath.Glob(filepath.Join(b.packages, "boot", "vmlinuz-*"))
	if err != nil || len(kernel) != 1 {
		return fmt.Errorf("the kernel's package has %d kernels (%w)", len(kernel), err)
	}
	line := filepath.Join(b.dir, role+".cmdline")
	if err := os.WriteFile(line, []byte(arguments+role), 0o644); err != nil {
		return fmt.Errorf("writing the kernel's arguments: %w", err)
	}
	from := filepath.Join(b.packages, stub)
	at, err := end(from)
	if err != nil {
		return err
	}
	var args []string
	for _, section := range []struct{ name, file string }{{".cmdline", line}, {".linux", kernel[0]}, {".initrd", b.initrd}} {
		info, err := os.Stat(section.file)
		if err != nil {
			return fmt.Errorf("measuring %s: %w", section.name, err)
		}
		args = append(args, "--add-section", section.name+"="+section.file, "--change-section-vma", fmt.Sprintf("%s=%#x", section.name, at))
		at += (uint64(info.Size()) + page - 1) / page * page
	}
	return b.run(ctx, "objcopy", append(args, from, path)...)
}

// end is the address behind the last section of an EFI program.
func end(path string) (uint64, error) {
	file, err := pe.Open(path)
	if err != nil {
		return 0, fmt.Errorf("reading the stub: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	header, ok := file.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		return 0, fmt.Errorf("reading the stub: %s is no 64-bit program", path)
	}
	last := uint32(0)
	for _, section := range file.Sections {
		last = max(last, section.VirtualAddress+section.VirtualSize)
	}
	return header.ImageBase + (uint64(last)+page-1)/page*page, nil
}

// partitionTable is all before the only partition, which EFI takes for its own.
func partitionTable(size int) []byte {
	table := make([]byte, partitionStart)
	entry := table[446:462]
	copy(entry, []byte{0, 0xfe, 0xff, 0xff, 0xef, 0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(entry[8:], partitionStart/sector)
	binary.LittleEndian.PutUint32(entry[12:], uint32(size/sector))
	table[510], table[511] = 0x55, 0xaa
	return table
}
