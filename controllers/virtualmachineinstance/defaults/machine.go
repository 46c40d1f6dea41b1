package defaults

import "regexp"

// Machine is the machine type of a VMI that names none, where the cluster names none either.
const Machine = "q35"

// machineTypes are the machine types that the launcher's QEMU, which is 10.0, has and the domain is built for.
var machineTypes = regexp.MustCompile(`^(q35|pc-q35-(2\.([4-9]|1[0-2])|3\.[01]|4\.0\.1|[45]\.[0-2]|[6-9]\.[0-2]|10\.0))$`)

// Machines is what is said of a machine type that there is not.
const Machines = "machine type is not supported: use q35, or pc-q35-2.4 to pc-q35-10.0"

// ThereIs says whether a guest can have a machine of this type.
func ThereIs(machine string) bool { return machineTypes.MatchString(machine) }
