package pod

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	virtv1 "kubevirt.io/api/core/v1"
)

const (
	// Names are as long as those that an API server generates: of the VMI's name stays what fits.
	nameBase   = 58
	nameSuffix = 5
)

// Name is that of the VMI's pod of a kind, KindLauncher or KindProvisioner. It follows from the VMI alone, so that the API server,
// which has one pod of a name, keeps two controllers from making two, and tells by one read whether there is one.
func Name(vmi *virtv1.VirtualMachineInstance, kind string) string {
	base := "virt-" + kind + "-" + vmi.Name + "-"
	sum := sha256.Sum256([]byte(kind + "/" + string(vmi.UID)))
	return base[:min(len(base), nameBase)] + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:nameSuffix]
}
