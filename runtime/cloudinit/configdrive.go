package cloudinit

import (
	"encoding/json"
	"fmt"

	"github.com/slipway-vm/slipway/runtime/iso"
)

// LabelConfigDrive is the volume label by which cloud-init knows a configuration drive.
const LabelConfigDrive = "config-2"

// latest is the folder that readers of a configuration drive look into.
const latest = "openstack/latest/"

// driveMetaData is ConfigDrive's meta_data.json.
type driveMetaData struct {
	InstanceType string            `json:"instance_type,omitempty"`
	InstanceID   string            `json:"instance_id"`
	Hostname     string            `json:"hostname,omitempty"`
	UUID         string            `json:"uuid,omitempty"`
	Devices      []Device          `json:"devices,omitempty"`
	PublicKeys   map[string]string `json:"public_keys,omitempty"` // by their place in the list
}

// WriteConfigDrive makes the image of ConfigDrive at path, whose folder also takes a
// temporary copy.
func WriteConfigDrive(path string, data Data) error {
	meta, err := json.Marshal(driveMetaData{
		InstanceType: data.InstanceType, InstanceID: data.InstanceID, Hostname: data.Hostname, UUID: data.UUID,
		Devices: data.Devices, PublicKeys: numbered(data.PublicKeys),
	})
	if err != nil {
		return fmt.Errorf("encoding meta_data.json: %w", err)
	}
	files := map[string][]byte{latest + "meta_data.json": meta, latest + "user_data": data.UserData}
	if len(data.NetworkData) > 0 {
		files[latest+"network_data.json"] = data.NetworkData
	}
	return iso.Write(path, LabelConfigDrive, iso.Private(files))
}
