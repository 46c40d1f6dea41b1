package kvm

// Requests of the kernel's interface (linux/kvm.h).
const (
	createVM   = 0xae01
	stateSize  = 0xae04
	createCPU  = 0xae41
	setMemory  = 0x4020ae46
	run        = 0xae80
	setGeneral = 0x4090ae82
	getSpecial = 0x8138ae83
	setSpecial = 0x4138ae84
)

type memoryRegion struct {
	slot, flags uint32
	physical    uint64
	size        uint64
	user        uint64
}

type generalRegisters struct {
	rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp uint64
	r8, r9, r10, r11, r12, r13, r14, r15   uint64
	rip, rflags                            uint64
}

type segment struct {
	base                                           uint64
	limit                                          uint32
	selector                                       uint16
	kind, present, dpl, db, s, long, granular, avl uint8
	unusable, _                                    uint8
}

type table struct {
	base  uint64
	limit uint16
	_     [3]uint16
}

type specialRegisters struct {
	cs, ds, es, fs, gs, ss, tr, ldt segment
	gdt, idt                        table
	cr0, cr2, cr3, cr4, cr8         uint64
	efer, apicBase                  uint64
	interrupts                      [4]uint64
}

// enterLongMode sets flat 64-bit segments, paging through the tables of fill, ring 0.
func (s *specialRegisters) enterLongMode() {
	const (
		protection, mathPresent, extension, numericError = 1 << 0, 1 << 1, 1 << 4, 1 << 5
		writeProtect, paging                             = 1 << 16, 1 << 31
		physicalExtension                                = 1 << 5
		longEnabled, longActive                          = 1 << 8, 1 << 10
	)
	s.cr0 = protection | mathPresent | extension | numericError | writeProtect | paging
	s.cr3 = pageMapL4
	s.cr4 = physicalExtension
	s.efer = longEnabled | longActive
	code := segment{limit: 0xffffffff, selector: 1 << 3, kind: 11, present: 1, s: 1, long: 1, granular: 1}
	data := segment{limit: 0xffffffff, selector: 2 << 3, kind: 3, present: 1, db: 1, s: 1, granular: 1}
	s.cs = code
	s.ds, s.es, s.fs, s.gs, s.ss = data, data, data, data, data
}
