// Package podnet looks at and changes a pod's network namespace: the thin executor of
// package network's plans.
//
// Everything is idempotent: what is there already stays, so that it can run again while
// a guest uses it. It needs CAP_NET_ADMIN and CAP_SYS_ADMIN on the node.
package podnet
