//go:build !(linux && amd64)

package kvm

import "errors"

const instructions = 0

// Run refuses: there is no proof for this architecture yet, so KVM is not advertised.
func Run() error {
	return errors.New("KVM cannot be proved on this architecture yet")
}
