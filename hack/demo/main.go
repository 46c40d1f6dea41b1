// Command demo does Slipway's main job on a real Kubernetes and shows it: a pipeline
// imports a disk, customizes it, boots a VM on it, proves the customization from
// inside the guest, publishes a golden image, makes a second VM from that image and
// cleans up the first.
//
//	go run ./hack/demo [--image-url URL] [--guest-user USER]
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/slipway-vm/slipway/tests/env"
)

// settings are what the user may choose.
type settings struct {
	imageURL string
	user     string
	size     string
}

func main() {
	var s settings
	flag.StringVar(&s.imageURL, "image-url", "", "URL of the disk to import; by default a Debian 12 that this machine builds and serves")
	flag.StringVar(&s.user, "guest-user", "debian", "user of the guest whom cloud-init lets log in")
	flag.StringVar(&s.size, "disk-size", "4Gi", "size of the volumes, at least the disk's virtual size")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	d := &demo{settings: s, out: os.Stdout}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"connect to the cluster", d.connect},
		{"install Slipway", d.install},
		{"serve the disk", d.serve},
		{"prepare the namespace", d.prepare},
		{"run the pipeline", d.pipeline},
		{"check what is left", d.check},
	}
	for _, step := range steps {
		fmt.Fprintf(d.out, "\n\033[1m=== %s ===\033[0m\n", step.name)
		begun := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		d.times = append(d.times, timed{name: step.name, took: time.Since(begun)})
	}
	d.report()
	return nil
}

func (d *demo) connect(ctx context.Context) error {
	var err error
	d.cluster, err = env.Open(ctx)
	return err
}

func (d *demo) install(ctx context.Context) error { return d.cluster.Install(ctx, d.out) }

// serve serves the default guest's disk to the cluster, unless the user named a disk.
func (d *demo) serve(ctx context.Context) error {
	if d.imageURL != "" {
		fmt.Fprintln(d.out, "the disk comes from", d.imageURL)
		return nil
	}
	disk, err := d.cluster.Guest(ctx, "debian")
	if err != nil {
		return err
	}
	root, err := d.cluster.Serve(ctx, http.FileServer(http.Dir(filepath.Dir(disk))))
	if err != nil {
		return err
	}
	d.imageURL = root + "/" + filepath.Base(disk)
	fmt.Fprintln(d.out, "serving a Debian 12 disk at", d.imageURL)
	return nil
}
