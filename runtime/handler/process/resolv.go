package process

import "strings"

// Resolver is what a pod's resolv.conf says.
type Resolver struct {
	Nameservers []string
	Search      []string
}

// Resolver reads the process's /etc/resolv.conf.
func (p *Process) Resolver() (Resolver, error) {
	data, err := p.ReadFile("/etc/resolv.conf")
	if err != nil {
		return Resolver{}, err
	}
	return parseResolver(string(data)), nil
}

// parseResolver reads resolv.conf(5): every nameserver, the last search or domain line.
func parseResolver(text string) Resolver {
	var out Resolver
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			out.Nameservers = append(out.Nameservers, fields[1])
		case "search", "domain":
			out.Search = fields[1:]
		}
	}
	return out
}
