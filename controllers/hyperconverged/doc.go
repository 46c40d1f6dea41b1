// Package hyperconverged is the operator: one HyperConverged object brings up virt-api,
// virt-controller, virt-handler and the rest from embedded YAML, creates the KubeVirt
// and CDI objects that clients look for, and keeps the status of all three true.
//
// What it does in a pass is listed in Reconcile; each step is a file.
package hyperconverged
