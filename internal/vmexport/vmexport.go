// Package vmexport is what the parts of an export agree on: virt-controller, which starts a server for
// each VirtualMachineExport; the server, which gives out volumes for a token; virt-exportproxy, by which
// it is reached from outside of the cluster; and virtctl, which asks for them. Names, paths and headers are
// the field's.
package vmexport

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	exportv1 "kubevirt.io/api/export/v1beta1"
)

// Kind is the kind of an export, as its objects name their owner.
const Kind = "VirtualMachineExport"

// Token is the name of the header, or else of the query's parameter, that has the token.
const Token = "x-kubevirt-export-token"

// KeyToken is the key of a token in its Secret.
const KeyToken = "token"

// Port is where a server listens in its pod; its Service has ServicePort.
const (
	Port        = 8443
	ServicePort = 443
)

// PathHealth is answered without a token.
const PathHealth = "/healthz"

// PathVolumes is above the path of every volume.
const PathVolumes = "/volumes/"

// Paths of the definition of an exported VM, and of the Secret by which its disks are imported: from within the
// cluster, and from outside.
const (
	PathManifest         = "/internal/manifests/all"
	PathSecret           = "/internal/manifests/secret"
	PathExternalManifest = "/external/manifests/all"
	PathExternalSecret   = "/external/manifests/secret"
)

// KeyManifest is the key of the definition, as a List in JSON, in its Secret. In the definition KeyAuthority is the
// key of whom to trust, in PEM, in its ConfigMap.
const (
	KeyManifest  = "manifest.json"
	KeyAuthority = "ca.pem"
)

// HeaderSecret is the name of the Secret with the header that the DataVolumes of a definition send, and
// AuthorityConfigMap that of the ConfigMap with whom they trust.
func HeaderSecret(export string) string { return "header-secret-" + export }

// AuthorityConfigMap is as HeaderSecret says.
func AuthorityConfigMap(export string) string { return "export-ca-cm-" + export }

// Formats are the formats of a volume that holds a disk, or else files: with the last part of their path.
var (
	Disk  = []exportv1.ExportVolumeFormat{exportv1.KubeVirtRaw, exportv1.KubeVirtGz}
	Files = []exportv1.ExportVolumeFormat{exportv1.Dir, exportv1.ArchiveGz}
)

// files are the last parts of the paths of formats.
var files = map[exportv1.ExportVolumeFormat]string{
	exportv1.KubeVirtRaw: "disk.img", exportv1.KubeVirtGz: "disk.img.gz", exportv1.Dir: "dir", exportv1.ArchiveGz: "disk.tar.gz",
}

// URL is where a server has a volume in a format, when it is reached at base: InternalBase or ExternalBase.
func URL(base, volume string, format exportv1.ExportVolumeFormat) string {
	at := url.URL{Path: PathVolumes + volume + "/" + files[format]}
	return base + at.EscapedPath()
}

// ParsePath reads a path below PathVolumes: the volume, its format, and of exportv1.Dir what is
// asked for in it, with the slash before it; that is "" for the folder itself written without one.
func ParsePath(path string) (volume string, format exportv1.ExportVolumeFormat, rest string, found bool) {
	path, found = strings.CutPrefix(path, PathVolumes)
	if !found {
		return "", "", "", false
	}
	volume, last, found := strings.Cut(path, "/")
	if !found || volume == "" {
		return "", "", "", false
	}
	if last == files[exportv1.Dir] || strings.HasPrefix(last, files[exportv1.Dir]+"/") {
		return volume, exportv1.Dir, strings.TrimPrefix(last, files[exportv1.Dir]), true
	}
	for format, name := range files {
		if name == last && format != exportv1.Dir {
			return volume, format, "", true
		}
	}
	return "", "", "", false
}

// definitions are the paths of the definition of an exported VM, and of the Secret that it names.
var definitions = []string{PathManifest, PathSecret, PathExternalManifest, PathExternalSecret}

// IsDefinition says whether the definition of the VM, or the Secret that it names, is at path of an export's server.
func IsDefinition(path string) bool { return slices.Contains(definitions, path) }

// IsExported says whether path of an export's server may have something that is exported.
func IsExported(path string) bool {
	_, _, _, found := ParsePath(path)
	return found || IsDefinition(path)
}

// maxName is how long the name of a Service may be.
const maxName = 63

// ServerName is the name of an export's pod and Service. An export's name that is no name of a
// Service, or makes too long a one, is cut, and told apart by a hash.
func ServerName(export string) string {
	name := "virt-export-" + export
	if len(name) <= maxName && !strings.Contains(name, ".") {
		return name
	}
	sum := sha256.Sum256([]byte(export))
	name = strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(name[:min(len(name), maxName-9)], "-") + "-" + hex.EncodeToString(sum[:4])
}

// Host is by what name an export's server is reached in the cluster, and what its certificate says.
func Host(namespace, export string) string {
	return fmt.Sprintf("%s.%s.svc", ServerName(export), namespace)
}

// InternalBase is above all that an export's server has, for who is in the cluster.
func InternalBase(namespace, export string) string { return "https://" + Host(namespace, export) }

// Expiry is when an export ends.
func Expiry(export *exportv1.VirtualMachineExport) time.Time {
	lifetime := exportv1.DefaultDurationTTL
	if given := export.Spec.TTLDuration; given != nil {
		lifetime = given.Duration
	}
	return export.CreationTimestamp.Add(lifetime)
}
