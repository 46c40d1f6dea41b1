package portforward

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// Kinds of targets.
const (
	VM  = "vm"
	VMI = "vmi"
)

const (
	protocolTCP = "tcp"
	protocolUDP = "udp"
)

// Target is whose ports are meant.
type Target struct {
	// Kind is VM or VMI.
	Kind string
	// Namespace is "" for that of the user's context.
	Namespace string
	Name      string
}

// ParseTarget reads type/name[/namespace].
func ParseTarget(text string) (Target, error) {
	if text == "" {
		return Target{}, errors.New("target cannot be empty")
	}
	parts := strings.Split(text, "/")
	if len(parts) < 2 {
		return Target{}, errors.New("target must contain type and name separated by '/'")
	}
	if len(parts) > 3 {
		return Target{}, errors.New("target is not valid with more than two '/'")
	}
	object, err := subresource.KindOf(parts[0])
	if err != nil {
		return Target{}, fmt.Errorf("%w; write vm or vmi", err)
	}
	t := Target{Kind: VMI, Name: parts[1]}
	if object(t.Name) == subresource.Machine(t.Name) {
		t.Kind = VM
	}
	if t.Name == "" {
		return Target{}, errors.New("name cannot be empty")
	}
	if len(parts) == 3 {
		if t.Namespace = parts[2]; t.Namespace == "" {
			return Target{}, errors.New("namespace cannot be empty")
		}
	}
	return t, nil
}

// port is a local port and that of the guest which it leads to.
type port struct {
	protocol      string
	local, remote int
}

func parsePorts(texts []string) ([]port, error) {
	ports := make([]port, 0, len(texts))
	for _, text := range texts {
		p, err := parsePort(text)
		if err != nil {
			return nil, fmt.Errorf("reading the port %q: %w", text, err)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// parsePort reads [protocol/]local[:target].
func parsePort(text string) (port, error) {
	p := port{protocol: protocolTCP}
	if protocol, rest, named := strings.Cut(text, "/"); named {
		p.protocol, text = protocol, rest
	}
	if p.protocol != protocolTCP && p.protocol != protocolUDP {
		return port{}, errors.New("unknown protocol: " + p.protocol + "; write tcp or udp")
	}
	local, remote, both := strings.Cut(text, ":")
	if !both {
		remote = local
	}
	for _, side := range []struct {
		text string
		into *int
	}{{local, &p.local}, {remote, &p.remote}} {
		number, err := strconv.ParseUint(side.text, 10, 16)
		if err != nil {
			return port{}, fmt.Errorf("%q is no port; write a number up to 65535", side.text)
		}
		*side.into = int(number)
	}
	if p.remote == 0 {
		return port{}, errors.New("port 0 of a guest is none")
	}
	return p, nil
}
