// Command container-disk hands the disk image of a container image to virt-handler:
// it runs as an init container in that image, sends the open file over the handler's
// socket, and ends once the handler has it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	volume := flag.String("volume", "", "name of the VMI's volume")
	path := flag.String("path", "", "the image's path in the container image; the only file under /disk by default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *volume, *path); err != nil {
		fmt.Fprintln(os.Stderr, "container-disk:", err)
		_ = os.WriteFile("/dev/termination-log", []byte(err.Error()), 0o644) // Kubernetes shows it
		os.Exit(1)
	}
}
