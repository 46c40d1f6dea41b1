// Package processor knows what a node's processor can be for guests, by what libvirt says of it, and the labels by
// which pods find a node that has what their guests ask for. It is pure: who asks libvirt is virt-launcher, in a
// container that runs before virt-handler, for only the launcher's image has it; who labels is virt-handler.
package processor

import (
	"encoding/xml"
	"fmt"
)

// Files of libvirt's answers, in the folder that both containers have.
const (
	// HostFile is of the capabilities of the host, DomainFile of those of domains of the kind that guests of the node
	// are, FeaturesFile has the processor of such a domain with all its features by their names.
	HostFile     = "capabilities.xml"
	DomainFile   = "domaincapabilities.xml"
	FeaturesFile = "features.xml"
)

// Processor is what a node's processor can be.
type Processor struct {
	// Model, Vendor and Required are of the model that is nearest to the host's own, with the features that the host
	// has beyond it; empty where there is none.
	Model, Vendor string
	Required      []string
	// Usable are the models that guests can have.
	Usable []string
	// Features are all that guests can have.
	Features []string
	// Counter is the host's time stamp counter; nil where libvirt does not tell.
	Counter *Counter
}

// Counter is a time stamp counter.
type Counter struct {
	// Frequency is in hertz.
	Frequency uint64
	// Scalable says that guests can have it at another frequency.
	Scalable bool
}

// Documents are libvirt's answers. Those of features and of the host may be missing.
type Documents struct {
	Host, Domain, Features []byte
}

// feature is a feature of a processor, in all documents.
type feature struct {
	Name   string `xml:"name,attr"`
	Policy string `xml:"policy,attr"`
}

// domainDocument is what is read of the capabilities of domains.
type domainDocument struct {
	Modes []struct {
		Name      string `xml:"name,attr"`
		Supported string `xml:"supported,attr"`
		Vendor    string `xml:"vendor"`
		Models    []struct {
			Name   string `xml:",chardata"`
			Usable string `xml:"usable,attr"`
		} `xml:"model"`
		Features []feature `xml:"feature"`
	} `xml:"cpu>mode"`
}

// What libvirt writes.
const (
	yes       = "yes"
	required  = "require"
	hostModel = "host-model"
	custom    = "custom"
	counter   = "tsc"
)

// Read reads libvirt's answers.
func Read(documents Documents) (*Processor, error) {
	p := &Processor{}
	for _, part := range []struct {
		name    string
		content []byte
		read    func([]byte) error
	}{
		{DomainFile, documents.Domain, p.readDomain}, {FeaturesFile, documents.Features, p.readFeatures}, {HostFile, documents.Host, p.readHost},
	} {
		if len(part.content) == 0 {
			continue
		}
		if err := part.read(part.content); err != nil {
			return nil, fmt.Errorf("reading libvirt's %s: %w", part.name, err)
		}
	}
	return p, nil
}

func (p *Processor) readDomain(content []byte) error {
	var document domainDocument
	if err := xml.Unmarshal(content, &document); err != nil {
		return err //nolint:wrapcheck // Read names the document
	}
	for _, mode := range document.Modes {
		switch {
		case mode.Supported != yes:
		case mode.Name == hostModel && len(mode.Models) > 0:
			p.Model, p.Vendor, p.Required = mode.Models[0].Name, mode.Vendor, namesOf(mode.Features)
		case mode.Name == custom:
			for _, model := range mode.Models {
				if model.Usable == yes {
					p.Usable = append(p.Usable, model.Name)
				}
			}
		}
	}
	return nil
}

func (p *Processor) readFeatures(content []byte) error {
	var document struct {
		Features []feature `xml:"feature"`
	}
	if err := xml.Unmarshal(content, &document); err != nil {
		return err //nolint:wrapcheck // Read names the document
	}
	p.Features = namesOf(document.Features)
	return nil
}

func (p *Processor) readHost(content []byte) error {
	var document struct {
		Counters []struct {
			Name      string `xml:"name,attr"`
			Frequency uint64 `xml:"frequency,attr"`
			Scaling   string `xml:"scaling,attr"`
		} `xml:"host>cpu>counter"`
	}
	if err := xml.Unmarshal(content, &document); err != nil {
		return err //nolint:wrapcheck // Read names the document
	}
	for _, one := range document.Counters {
		if one.Name == counter && one.Frequency > 0 {
			p.Counter = &Counter{Frequency: one.Frequency, Scalable: one.Scaling == yes}
		}
	}
	return nil
}

// namesOf are the features that a processor has, not those that it lacks.
func namesOf(features []feature) []string {
	var all []string
	for _, one := range features {
		if one.Policy == required {
			all = append(all, one.Name)
		}
	}
	return all
}
