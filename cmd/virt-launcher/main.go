// Command virt-launcher is the first process of a launcher pod: it runs one virtual
// machine. It is the only program with cgo, for libvirt.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/slipway-vm/slipway/runtime/launcher"
)

func main() {
	options := launcher.PodOptions()
	flag.StringVar(&options.Name, "name", "", "name of the VirtualMachineInstance")
	flag.StringVar(&options.Namespace, "namespace", "", "its namespace")
	flag.StringVar(&options.UID, "uid", "", "its uid")
	grace := flag.Int("grace-period-seconds", 30, "how long the guest may take to shut down after SIGTERM")
	bake := flag.String("bake-capabilities", "", "only write what QEMU can do to this file of the image being built")
	describe := flag.String("describe-node", "", "only write what libvirt knows of this node's processor into this folder")
	flag.Parse()
	if *describe != "" {
		if err := launcher.DescribeNode(context.Background(), *describe); err != nil {
			// virt-handler is to start all the same; the node only has no labels of its processor.
			options.Log.Warn("Failed to look at the node's processor", "err", err)
		}
		return
	}
	if *bake != "" {
		if err := launcher.BakeCapabilities(context.Background(), options.LibvirtDir, *bake); err != nil {
			options.Log.Error("Failed to look at QEMU", "err", err)
			os.Exit(1)
		}
		return
	}
	options.GracePeriod = time.Duration(*grace) * time.Second

	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM, syscall.SIGINT)
	if err := launcher.Run(context.Background(), options, terminate); err != nil {
		options.Log.Error("Failed to run the virtual machine", "err", err)
		os.Exit(1)
	}
}
