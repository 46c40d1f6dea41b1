// Package network decides what a launcher pod's network namespace must hold so that
// its guest is reachable at the pod's address: taps, sysctls, nftables rules and wires.
//
// It is pure: New turns a VMI and what was seen in the pod into a Plan, and package
// podnet brings the namespace there. A guest behind masquerade sees 10.0.2.2 behind the
// gateway 10.0.2.1, and the world sees the pod's address. A guest on a bridge has the pod's
// address itself: its tap and the pod's interface are wired to each other.
package network
