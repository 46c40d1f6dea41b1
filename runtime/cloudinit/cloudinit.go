// Package cloudinit makes the disk from which cloud-init configures a guest: the
// NoCloud data source, an ISO 9660 image with the label cidata.
package cloudinit

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	v1 "kubevirt.io/api/core/v1"
)

// Label is the volume label by which cloud-init knows the disk.
const Label = "cidata"

const (
	sector  = 2048    // the unit of ISO 9660, in bytes
	padding = 1 << 20 // images are a multiple of this, in bytes; what is added is sparse
)

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
	// UserData and NetworkData are documents in the guest's own words; NetworkData may be empty.
	UserData, NetworkData []byte
}

// FromVMI gathers the data of a cloudInitNoCloud volume: inline, base64, or from the
// Secrets that are mounted at secretDir.
func FromVMI(vmi *v1.VirtualMachineInstance, source *v1.CloudInitNoCloudSource, secretDir string) (Data, error) {
	data := Data{InstanceID: vmi.Name + "." + vmi.Namespace, Hostname: Hostname(vmi)}
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
	InstanceID    string `json:"instance-id"`
	LocalHostname string `json:"local-hostname,omitempty"`
}

// WriteISO makes the image at path, whose folder also takes a temporary copy.
func WriteISO(path string, data Data) (err error) {
	meta, err := json.Marshal(metaData{InstanceID: data.InstanceID, LocalHostname: data.Hostname})
	if err != nil {
		return fmt.Errorf("encoding meta-data: %w", err)
	}
	workspace, err := os.MkdirTemp(filepath.Dir(path), ".cidata-")
	if err != nil {
		return fmt.Errorf("making a folder for %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(workspace)) }()
	files := map[string][]byte{"meta-data": meta, "user-data": data.UserData}
	if len(data.NetworkData) > 0 {
		files["network-config"] = data.NetworkData
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(workspace, name), content, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return pack(path, workspace)
}

// pack writes the files of workspace into a new image at path. Their names do not
// fit plain ISO 9660: Linux reads them by Rock Ridge, others by Joliet.
func pack(path, workspace string) (err error) {
	image, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o660)
	if err != nil {
		return fmt.Errorf("creating image: %w", err)
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	iso, err := iso9660.Create(file.New(image, false), 0, 0, sector, workspace)
	if err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	if err := iso.Finalize(iso9660.FinalizeOptions{RockRidge: true, Joliet: true, VolumeIdentifier: Label}); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	info, err := image.Stat()
	if err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	// The image ends with its last file's last byte. Guests read whole sectors, and some
	// look for other file systems further on before they take it for what it is.
	if err := image.Truncate((info.Size() + padding - 1) / padding * padding); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	return nil
}
