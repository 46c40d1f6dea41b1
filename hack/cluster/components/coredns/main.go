// Command coredns is the local cluster's DNS server: CoreDNS with only the
// plugins that the cluster's Corefile names.
package main

import (
	_ "github.com/coredns/coredns/plugin/cache"      // keeps answers
	_ "github.com/coredns/coredns/plugin/errors"     // logs failures
	_ "github.com/coredns/coredns/plugin/forward"    // names outside the cluster, where the machine has a resolver
	_ "github.com/coredns/coredns/plugin/health"     // liveness
	_ "github.com/coredns/coredns/plugin/hosts"      // fixed names
	_ "github.com/coredns/coredns/plugin/kubernetes" // services and pods
	_ "github.com/coredns/coredns/plugin/log"        // queries, when asked for
	_ "github.com/coredns/coredns/plugin/ready"      // readiness
	_ "github.com/coredns/coredns/plugin/template"   // a plain answer for every other name

	"github.com/coredns/coredns/coremain"
)

func main() {
	coremain.Run()
}
