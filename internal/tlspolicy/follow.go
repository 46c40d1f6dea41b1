package tlspolicy

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FollowKubeVirt has the KubeVirt object's tlsConfiguration set p, from when mgr runs on.
func (p *Policy) FollowKubeVirt(mgr ctrl.Manager) error {
	return p.follow(mgr, &virtv1.KubeVirt{}, func(object any) *Settings {
		kv, is := object.(*virtv1.KubeVirt)
		if !is {
			return nil
		}
		return OfKubeVirt(kv.Spec.Configuration.TLSConfiguration)
	})
}

// FollowCDI has the tlsSecurityProfile of the CDIConfig, which is the CDI object's, set p, from when mgr runs on.
func (p *Policy) FollowCDI(mgr ctrl.Manager) error {
	return p.follow(mgr, &cdiv1.CDIConfig{}, func(object any) *Settings {
		config, is := object.(*cdiv1.CDIConfig)
		if !is {
			return nil
		}
		return OfProfile(config.Spec.TLSSecurityProfile)
	})
}

func (p *Policy) follow(mgr ctrl.Manager, kind client.Object, read func(any) *Settings) error {
	f := &follower{policy: p, kind: kind, read: read, cache: mgr.GetCache(), log: mgr.GetLogger().WithName("tls")}
	if err := mgr.Add(f); err != nil {
		return fmt.Errorf("following what %T says of TLS: %w", kind, err)
	}
	return nil
}

// follower is a part of a manager that follows the one object of a kind.
type follower struct {
	policy *Policy
	kind   client.Object
	read   func(any) *Settings
	cache  cache.Cache
	log    logr.Logger
}

// NeedLeaderElection says that those who wait to lead serve, too.
func (f *follower) NeedLeaderElection() bool { return false }

// Start follows until ctx is done.
func (f *follower) Start(ctx context.Context) error {
	informer, err := f.cache.GetInformer(ctx, f.kind)
	if err != nil {
		return fmt.Errorf("watching what %T says of TLS: %w", f.kind, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    f.apply,
		UpdateFunc: func(_, object any) { f.apply(object) },
		DeleteFunc: func(any) { f.apply(nil) },
	})
	if err != nil {
		return fmt.Errorf("watching what %T says of TLS: %w", f.kind, err)
	}
	<-ctx.Done()
	return nil
}

// apply sets what object, or nil, says. What is set already stays, with the keys of its sessions.
func (f *follower) apply(object any) {
	wanted, current := f.read(object), f.policy.current.Load()
	if wanted.equal(current) {
		return
	}
	f.log.Info("Changing how TLS is spoken", "from", current.Args(), "to", wanted.Args())
	f.policy.Set(wanted)
}
