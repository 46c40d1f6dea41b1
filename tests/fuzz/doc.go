// Package fuzz shows of objects made at random that admission answers whatever it is asked of any kind, new or changed, and names the path
// of what it refuses; and of every VirtualMachineInstance that it admits that the domain builder makes a domain of it which libvirt
// takes. What is found is mended where it is wrong, and kept in testdata.
package fuzz
