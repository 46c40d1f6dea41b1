// Package fuzz shows two things of VirtualMachineInstances made at random: admission answers
// every one, and names the path of what it refuses; and of every one that it admits the domain
// builder makes a domain that libvirt takes. What is found is mended where it is wrong, and kept
// in testdata.
package fuzz
