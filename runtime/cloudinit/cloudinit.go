// Package cloudinit makes the disk from which cloud-init configures a guest: an ISO 9660
// image, of the data source NoCloud with the label cidata or ConfigDrive with config-2.
package cloudinit

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/guestid"
	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/iso"
)

// Label is the volume label by which cloud-init knows the disk of NoCloud.
const Label = "cidata"

// Keys of Secrets with cloud-init data; both spellings are in use.
var (
	userDataKeys    = []string{"userdata", "userData"}
	networkDataKeys = []string{"networkdata", "networkData"}
)

// Data is what cloud-init reads.
type Data struct {
	// InstanceID is the guest's identity: cloud-init runs its first-boot modules again
	// when it changes.
	InstanceID string
	Hostname   string
	// InstanceType is what the guest's size is called; empty for none.
	InstanceType string
	// UUID is the machine's; only ConfigDrive tells it, and Devices.
	UUID    string
	Devices []Device
	// UserData and NetworkData are documents in the guest's own words; NetworkData may be empty.
	UserData, NetworkData []byte
	// PublicKeys are the SSH keys of the guest's default user.
	PublicKeys []string
}

// Source returns the source of volume's cloud-init data, nil for none: both kinds have
// the same fields.
func Source(volume *v1.Volume) *v1.CloudInitNoCloudSource {
	if drive := volume.CloudInitConfigDrive; drive != nil {
		return new(v1.CloudInitNoCloudSource(*drive))
	}
	return volume.CloudInitNoCloud
}

// FromVMI gathers the data of a cloud-init volume: inline, base64, or from the Secrets
// that are mounted at secretDir.
func FromVMI(vmi *v1.VirtualMachineInstance, source *v1.CloudInitNoCloudSource, secretDir string) (Data, error) {
	data := Data{InstanceID: guestid.Name(vmi) + "." + vmi.Namespace, Hostname: Hostname(vmi), UUID: domain.UUID(vmi)}
	data.InstanceType = cmp.Or(vmi.Annotations[v1.ClusterInstancetypeAnnotation], vmi.Annotations[v1.InstancetypeAnnotation])
	var err error
	data.UserData, err = document(source.UserData, source.UserDataBase64, source.UserDataSecretRef != nil, secretDir, userDataKeys)
	if err != nil {
		return data, fmt.Errorf("user data: %w", err)
	}
	data.NetworkData, err = document(source.NetworkData, source.NetworkDataBase64, source.NetworkDataSecretRef != nil, secretDir, networkDataKeys)
	if err != nil {
		return data, fmt.Errorf("network data: %w", err)
	}
	return data, nil
}

// Hostname is spec.hostname, else the VMI's name.
func Hostname(vmi *v1.VirtualMachineInstance) string {
	if vmi.Spec.Hostname != "" {
		return vmi.Spec.Hostname
	}
	return vmi.Name
}

func document(inline, encoded string, secret bool, dir string, keys []string) ([]byte, error) {
	switch {
	case secret:
		for _, key := range keys {
			data, err := os.ReadFile(filepath.Join(dir, key))
			if err == nil {
				return data, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("reading the Secret: %w", err)
			}
		}
		return nil, fmt.Errorf("the Secret has no key %s; add it", keys[0])
	case encoded != "":
		data, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, fmt.Errorf("decoding base64: %w; encode the document anew", err)
		}
		return data, nil
	default:
		return []byte(inline), nil
	}
}

// metaData is NoCloud's meta-data document; JSON is YAML.
type metaData struct {
	InstanceType  string            `json:"instance-type,omitempty"`
	InstanceID    string            `json:"instance-id"`
	LocalHostname string            `json:"local-hostname,omitempty"`
	PublicKeys    map[string]string `json:"public-keys,omitempty"` // by their place in the list
}

// WriteISO makes the image of NoCloud at path, whose folder also takes a temporary copy.
func WriteISO(path string, data Data) error {
	meta, err := json.Marshal(metaData{
		InstanceType: data.InstanceType, InstanceID: data.InstanceID, LocalHostname: data.Hostname, PublicKeys: numbered(data.PublicKeys),
	})
	if err != nil {
		return fmt.Errorf("encoding meta-data: %w", err)
	}
	files := map[string][]byte{"meta-data": meta, "user-data": data.UserData}
	if len(data.NetworkData) > 0 {
		files["network-config"] = data.NetworkData
	}
	return iso.Write(path, Label, iso.Private(files))
}

// numbered are keys by their place in the list.
func numbered(keys []string) map[string]string {
	all := map[string]string{}
	for i, key := range keys {
		all[strconv.Itoa(i)] = key
	}
	return all
}
