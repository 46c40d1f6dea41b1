package vmi

import (
	"fmt"
	"os"
	"strconv"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/process"
	"github.com/slipway-vm/slipway/runtime/volume"
	"github.com/slipway-vm/slipway/runtime/volume/imagefile"
)

// takeImages takes what the pod has in image volumes of missing to what is handed to the launcher.
func takeImages(s *scope, missing []string) error {
	for _, file := range volume.InImages(s.vmi, s.pod, missing) {
		image, err := openImage(s.view.Launcher, file)
		if err != nil {
			return fmt.Errorf("volume %s: %w", file.Name, err)
		}
		if err := s.session.TakeDisk(file.Name, image); err != nil {
			_ = image.Close() // it was only read
			return fmt.Errorf("volume %s: %w", file.Name, err)
		}
	}
	s.view = s.session.View()
	return nil
}

// openImage opens file where the kubelet has mounted its image into the launcher's container: nothing
// that the launcher made is opened, and no link leads out of the image.
func openImage(launcher *process.Process, file volume.ImageFile) (*os.File, error) {
	folder, err := launcher.OpenMount(names.LauncherImagesDir, file.Folder)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return imagefile.Open("/proc/self/fd/"+strconv.Itoa(int(folder.Fd())), file.Path)
}
