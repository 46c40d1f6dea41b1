// Package kubevirtconfig says what is wrong with a KubeVirt object: with the one that HyperConverged and
// its annotation ask for, and with one that is changed by hand.
package kubevirtconfig
