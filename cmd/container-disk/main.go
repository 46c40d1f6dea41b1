// Command container-disk hands the disk image of a container image to virt-handler:
// it runs as an init container in that image, sends the open file over the handler's
// socket, and ends once the handler has it. With --hold it is the one process of an
// attachment pod, and stays.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/slipway-vm/slipway/internal/names"
)

func main() {
	volume := flag.String("volume", "", "name of the VMI's volume")
	path := flag.String("path", "", "the image's path in the container image; the only file under /disk by default")
	holds := flag.Bool("hold", false, "stay, so that virt-handler reaches the volume of this pod")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	do := func() error { return run(ctx, *volume, *path) }
	if *holds {
		do = func() error { return hold(ctx, names.LauncherSocketDir, *volume) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "container-disk:", err)
		_ = os.WriteFile("/dev/termination-log", []byte(err.Error()), 0o644) // Kubernetes shows it
		os.Exit(1)
	}
}
