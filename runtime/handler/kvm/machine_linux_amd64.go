package kvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Layout of the guest's memory.
const (
	memorySize  = 0x6000
	pageMapL4   = 0x1000
	pageMapL3   = 0x2000
	pageMapL2   = 0x3000
	codeAddress = 0x4000
	dataAddress = 0x5000
)

// The guest's loop has four instructions a round.
const (
	proofRounds  = 2_000_000
	instructions = 4 * proofRounds
)

// program sums the numbers from rounds down to 1, storing each step to memory.
func program(rounds uint32) []byte {
	code := []byte{0x48, 0xc7, 0xc1} // mov rcx, rounds
	code = binary.LittleEndian.AppendUint32(code, rounds)
	return append(code,
		0x48, 0x31, 0xc0, // xor rax, rax
		0x48, 0x01, 0xc8, // add rax, rcx
		0x48, 0x89, 0x07, // mov [rdi], rax
		0x48, 0xff, 0xc9, // dec rcx
		0x75, 0xf5, // jnz to the add
		0xf4, // hlt
	)
}

// Run executes the guest once, however long that takes.
func Run() error { return count(proofRounds) }

// count runs a guest that counts down from rounds.
func count(rounds uint32) error {
	runtime.LockOSThread() // a virtual CPU belongs to one thread
	defer runtime.UnlockOSThread()
	kvm, err := os.OpenFile(Device, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	defer kvm.Close()
	machine, err := call(kvm.Fd(), createVM, 0)
	if err != nil {
		return fmt.Errorf("creating a machine: %w", err)
	}
	defer unix.Close(int(machine))
	memory, err := unix.Mmap(-1, 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("making the guest's memory: %w", err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	fill(memory, rounds)
	region := memoryRegion{size: memorySize, user: uint64(uintptr(unsafe.Pointer(&memory[0])))}
	if _, err := call(machine, setMemory, uintptr(unsafe.Pointer(&region))); err != nil {
		return fmt.Errorf("giving the machine memory: %w", err)
	}
	cpu, err := call(machine, createCPU, 0)
	if err != nil {
		return fmt.Errorf("creating a CPU: %w", err)
	}
	defer unix.Close(int(cpu))
	size, err := call(kvm.Fd(), stateSize, 0)
	if err != nil {
		return fmt.Errorf("asking for the size of a CPU's state: %w", err)
	}
	state, err := unix.Mmap(int(cpu), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the CPU's state: %w", err)
	}
	defer func() { _ = unix.Munmap(state) }()
	if err := execute(cpu, state); err != nil {
		return err
	}
	want := uint64(rounds) * (uint64(rounds) + 1) / 2
	if sum := binary.LittleEndian.Uint64(memory[dataAddress:]); sum != want {
		return fmt.Errorf("the guest computed %d, want %d", sum, want)
	}
	return nil
}

// fill writes page tables that map the first 2 MiB to themselves, and the program.
func fill(memory []byte, rounds uint32) {
	const present, writable, large = 1, 2, 0x80
	binary.LittleEndian.PutUint64(memory[pageMapL4:], pageMapL3|present|writable)
	binary.LittleEndian.PutUint64(memory[pageMapL3:], pageMapL2|present|writable)
	binary.LittleEndian.PutUint64(memory[pageMapL2:], present|writable|large)
	copy(memory[codeAddress:], program(rounds))
}

// execute starts the CPU in long mode and runs it until it halts.
func execute(cpu uintptr, state []byte) error {
	var special specialRegisters
	if _, err := call(cpu, getSpecial, uintptr(unsafe.Pointer(&special))); err != nil {
		return fmt.Errorf("reading the CPU's registers: %w", err)
	}
	special.enterLongMode()
	if _, err := call(cpu, setSpecial, uintptr(unsafe.Pointer(&special))); err != nil {
		return fmt.Errorf("putting the CPU into long mode: %w", err)
	}
	registers := generalRegisters{rip: codeAddress, rdi: dataAddress, rflags: 2}
	if _, err := call(cpu, setGeneral, uintptr(unsafe.Pointer(&registers))); err != nil {
		return fmt.Errorf("setting the CPU's registers: %w", err)
	}
	for {
		_, err := call(cpu, run, 0)
		if errors.Is(err, syscall.EINTR) { // a signal of Go's scheduler
			continue
		}
		if err != nil {
			return fmt.Errorf("running the CPU: %w", err)
		}
		break
	}
	const exitReasonOffset, exitHalt = 8, 5
	if reason := binary.LittleEndian.Uint32(state[exitReasonOffset:]); reason != exitHalt {
		return fmt.Errorf("the CPU stopped with exit reason %d, want a halt", reason)
	}
	return nil
}

func call(fd, request, argument uintptr) (uintptr, error) {
	result, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, argument)
	if errno != 0 {
		return 0, fmt.Errorf("request %#x: %w", request, errno)
	}
	return result, nil
}
