// Package network decides what a launcher pod's network namespace must hold so that
// its guest is reachable at the pod's address: taps, sysctls and nftables rules.
//
// It is pure: New turns a VMI and what was seen in the pod into a Plan, and package
// podnet brings the namespace there. The guest sits behind masquerade: it sees
// 10.0.2.2 behind the gateway 10.0.2.1, the world sees the pod's address.
package network
