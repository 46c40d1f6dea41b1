// Package configdisc makes discs of what Kubernetes mounts into pods: a ConfigMap, a
// Secret, the token of a service account, facts of the pod itself.
package configdisc

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/iso"
)

// Label is the volume label of a disc that is given none.
const Label = "cfgdata"

// Of returns the label of the disc that volume is, and whether it is one.
func Of(volume *v1.Volume) (label string, is bool) {
	switch {
	case volume.ConfigMap != nil:
		label, is = volume.ConfigMap.VolumeLabel, true
	case volume.Secret != nil:
		label, is = volume.Secret.VolumeLabel, true
	case volume.DownwardAPI != nil:
		label, is = volume.DownwardAPI.VolumeLabel, true
	case volume.ServiceAccount != nil:
		is = true
	}
	return cmp.Or(label, Label), is
}

// Files reads what is mounted at dir, by path, with its permissions. An optional object
// that does not exist is a folder with nothing in it.
func Files(dir string) (map[string]iso.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening what is mounted: %w", err)
	}
	defer root.Close()
	files := map[string]iso.File{}
	return files, read(root, ".", files)
}

// read collects the files below dir. The kubelet's links into its own folder, whose name
// begins with two dots, are followed; none leads out of root.
func read(root *os.Root, dir string, files map[string]iso.File) error {
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return fmt.Errorf("reading folder %s of what is mounted: %w", dir, err)
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if strings.HasPrefix(name, "..") {
			continue
		}
		info, err := root.Stat(name)
		if err != nil {
			return fmt.Errorf("looking at %s of what is mounted: %w", name, err)
		}
		if info.IsDir() {
			err = read(root, name, files)
		} else {
			err = readOne(root, name, info.Mode().Perm(), files)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readOne(root *os.Root, name string, mode fs.FileMode, files map[string]iso.File) error {
	data, err := root.ReadFile(name)
	if err != nil {
		return fmt.Errorf("reading %s of what is mounted: %w", name, err)
	}
	files[name] = iso.File{Data: data, Mode: mode}
	return nil
}
