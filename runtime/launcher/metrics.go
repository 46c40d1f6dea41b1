package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/disks"
	"github.com/slipway-vm/slipway/runtime/launcher/downward"
)

// metricsPeriod is how often disks of metrics are written anew.
const metricsPeriod = 5 * time.Second

// keepMetrics tells the guest of its node and of itself, by the ways that vmi asks for, until ctx is
// done. QEMU runs by now: it has the disks open, and listens for the port.
func (m *machine) keepMetrics(ctx context.Context, vmi *v1.VirtualMachineInstance, node string) error {
	for i := range vmi.Spec.Volumes {
		if vmi.Spec.Volumes[i].DownwardMetrics == nil {
			continue
		}
		disk, err := os.OpenFile(disks.MetricsPath(m.paths(), vmi.Spec.Volumes[i].Name), os.O_WRONLY, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // a volume that no disk shows
		}
		if err != nil {
			return fmt.Errorf("opening the disk of metrics: %w", err)
		}
		go m.writeMetrics(ctx, disk, node)
	}
	if !domain.TellsMetrics(vmi) {
		return nil
	}
	var dialer net.Dialer
	port, err := dialer.DialContext(ctx, "unix", filepath.Join(m.options.own(), socketMetrics))
	if err != nil {
		return fmt.Errorf("connecting to the guest's port of metrics: %w", err)
	}
	go func() {
		err := downward.Serve(ctx, port, func(context.Context) ([]byte, error) { return m.metrics(node) })
		if err != nil && ctx.Err() == nil {
			m.log.Info("The guest's port of metrics is closed", "reason", err.Error())
		}
	}()
	return nil
}

// writeMetrics writes disk anew now and then. While libvirt is away it stays as it is.
func (m *machine) writeMetrics(ctx context.Context, disk *os.File, node string) {
	defer func() { _ = disk.Close() }()
	again := time.NewTicker(metricsPeriod)
	defer again.Stop()
	for {
		document, err := m.metrics(node)
		if err == nil {
			err = downward.WriteDisk(disk, document)
		}
		if err != nil {
			m.log.Debug("Failed to write the guest's disk of metrics", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// metrics are what the guest is told at this moment.
func (m *machine) metrics(node string) ([]byte, error) {
	stats, err := m.hv.Stats()
	if err != nil {
		return nil, err
	}
	product, err := m.hv.Product()
	if err != nil {
		return nil, err
	}
	document, err := downward.Document(downward.Facts{Node: node, Product: product, Host: os.DirFS("/"), Guest: stats, Now: time.Now()})
	if document != nil && err != nil {
		m.log.Debug("Failed to learn all of the node for the guest's metrics", "err", err)
		err = nil
	}
	return document, err
}
