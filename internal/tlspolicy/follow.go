package tlspolicy

import (
	"github.com/go-logr/logr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/internal/follow"
)

// FollowKubeVirt has the KubeVirt object's tlsConfiguration set p, from when mgr runs on.
func (p *Policy) FollowKubeVirt(mgr ctrl.Manager) error {
	log := mgr.GetLogger().WithName("tls")
	return follow.Object(mgr, &virtv1.KubeVirt{}, func(object any) { //nolint:wrapcheck // it says what was done
		var said *virtv1.TLSConfiguration
		if kv, is := object.(*virtv1.KubeVirt); is {
			said = kv.Spec.Configuration.TLSConfiguration
		}
		p.change(log, OfKubeVirt(said))
	})
}

// FollowCDI has the tlsSecurityProfile of the CDIConfig, which is the CDI object's, set p, from when mgr runs on.
func (p *Policy) FollowCDI(mgr ctrl.Manager) error {
	log := mgr.GetLogger().WithName("tls")
	return follow.Object(mgr, &cdiv1.CDIConfig{}, func(object any) { //nolint:wrapcheck // it says what was done
		var said *cdiv1.TLSSecurityProfile
		if config, is := object.(*cdiv1.CDIConfig); is {
			said = config.Spec.TLSSecurityProfile
		}
		p.change(log, OfProfile(said))
	})
}

// change sets wanted. What is set already stays, with the keys of its sessions.
func (p *Policy) change(log logr.Logger, wanted *Settings) {
	current := p.current.Load()
	if wanted.equal(current) {
		return
	}
	log.Info("Changing how TLS is spoken", "from", current.Args(), "to", wanted.Args())
	p.Set(wanted)
}
