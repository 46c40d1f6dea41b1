// Package downward tells a guest of its node and of itself, in the words of vhostmd and by its two
// ways: a small disk that is written anew every few seconds, and a virtio-serial port that answers.
//
// Formats: vhostmd's README (https://github.com/vhostmd/vhostmd), whose vm-dump-metrics reads both.
package downward

import (
	"encoding/xml"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Vendor is the metric VirtualizationVendor, by which programs in guests know where they are.
const Vendor = "kubevirt.io"

// Facts are what a guest is told.
type Facts struct {
	// Node is the node's name.
	Node string
	// Product is the hypervisor with its version.
	Product string
	// Host is the node's root folder, of which proc and sys are read.
	Host fs.FS
	// Guest is what the guest used.
	Guest protocol.Stats
	// Now is the node's time.
	Now time.Time
}

// document is what a guest reads.
type document struct {
	XMLName xml.Name `xml:"metrics"`
	Metrics []metric `xml:"metric"`
}

type metric struct {
	Type    string `xml:"type,attr"`
	Context string `xml:"context,attr"`
	Unit    string `xml:"unit,attr,omitempty"`
	Name    string `xml:"name"`
	Value   text   `xml:"value"`
}

type text struct {
	Text string `xml:",cdata"`
}

// Contexts of metrics.
const (
	ofHost = "host"
	ofVM   = "vm"
)

// Units of metrics.
const (
	seconds   = "s"
	kibibytes = "KiB"
)

func word(name, value string) metric {
	return metric{Type: "string", Context: ofHost, Name: name, Value: text{value}}
}

func whole(context, name, unit string, value uint64) metric {
	return metric{Type: "uint64", Context: context, Unit: unit, Name: name, Value: text{strconv.FormatUint(value, 10)}}
}

func signed(name, unit string, value int64) metric {
	return metric{Type: "int64", Context: ofHost, Unit: unit, Name: name, Value: text{strconv.FormatInt(value, 10)}}
}

func fraction(context, name, unit string, value float64) metric {
	return metric{Type: "real64", Context: context, Unit: unit, Name: name, Value: text{fmt.Sprintf("%.6f", value)}}
}

// Document is the XML that the guest reads, without a newline at its end. What cannot be learned of
// the node is left out, and why is the error beside the document.
func Document(facts Facts) ([]byte, error) {
	metrics := []metric{
		word("HostName", facts.Node),
		word("HostSystemInfo", "linux"),
		word("VirtualizationVendor", Vendor),
		word("VirtProductInfo", facts.Product),
	}
	metrics = append(metrics, guestMetrics(facts.Guest)...)
	host, hostErr := hostMetrics(facts.Host)
	metrics = append(metrics, host...)
	metrics = append(metrics, signed("Time", seconds, facts.Now.Unix()))
	written, err := xml.MarshalIndent(document{Metrics: metrics}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding metrics: %w", err)
	}
	return written, hostErr
}

// guestMetrics is what the guest may use and used. Its memory is all that the balloon leaves it.
func guestMetrics(stats protocol.Stats) []metric {
	var nanoseconds uint64
	for _, vcpu := range stats.VCPUs {
		if vcpu.Time != nil {
			nanoseconds += *vcpu.Time
		}
	}
	metrics := []metric{
		fraction(ofVM, "TotalCPUTime", seconds, float64(nanoseconds)/float64(time.Second)),
		whole(ofVM, "ResourceProcessorLimit", "", uint64(len(stats.VCPUs))),
	}
	if balloon := stats.Memory.Balloon; balloon != nil {
		for _, name := range []string{"PhysicalMemoryAllocatedToVirtualSystem", "ResourceMemoryLimit"} {
			metrics = append(metrics, whole(ofVM, name, kibibytes, *balloon>>10))
		}
	}
	return metrics
}
