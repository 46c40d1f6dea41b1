package dataimportcron

import (
	"net/netip"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// SetupAnywhere is SetupWithManager for tests, whose servers are on this machine and whose time is now.
func SetupAnywhere(mgr ctrl.Manager, namespace string, now func() time.Time) error {
	return setup(mgr, namespace, "registry.local/slipway:test", &sources{live: mgr.GetAPIReader(), allowed: func(netip.Addr) bool { return true }}, now)
}
