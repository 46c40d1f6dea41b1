// Package kvm proves that the node's /dev/kvm runs 64-bit guests at the speed of
// hardware, before the node advertises it.
//
// On some nested hosts the device opens and firmware starts, but every instruction of a
// 64-bit kernel is emulated and a guest never comes up. So a tiny guest counts through
// some million instructions in long mode within a time bound, in a child process that
// can be killed.
package kvm
