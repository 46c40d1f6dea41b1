// Package handler is the node's agent, virt-handler: it serves the sockets of the
// node's launcher pods, prepares their networks and devices, keeps the status of the
// node's VMIs true, offers the node's virtualization devices to the kubelet, and does to
// running VMs what users ask virt-api for.
//
// It keeps no state: killed and started again it finds everything by the pods, VMIs and
// launchers that are there, and no VM notices.
package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/runtime/handler/api"
	"github.com/slipway-vm/slipway/runtime/handler/devices"
	"github.com/slipway-vm/slipway/runtime/handler/kvm"
	"github.com/slipway-vm/slipway/runtime/handler/metrics"
	"github.com/slipway-vm/slipway/runtime/handler/node"
	"github.com/slipway-vm/slipway/runtime/handler/pod"
	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/handler/vmi"
	"github.com/slipway-vm/slipway/runtime/handler/vsock"
)

// name is the component's, as users see it in events and labels.
const name = "virt-handler"

// Options say where the handler works.
type Options struct {
	Config *rest.Config
	// NodeName is the node's name in the cluster.
	NodeName string
	// KubeletRoot is the kubelet's root directory, the same path in the handler's pod.
	KubeletRoot string
	// Description is the folder in which virt-launcher has described the node's processor; empty for none.
	Description string
	// Address serves /healthz and /readyz, MetricsAddress /metrics with TLS, as host:port; "0" serves none.
	Address, MetricsAddress string
	// APIAddress serves virt-api, as host:port.
	APIAddress string
	// Namespace is the installation's.
	Namespace string
	// Version is the program's version.
	Version string
	// TLS is how TLS is spoken; nil for 1.2 and newer.
	TLS *tlspolicy.Policy
	// ProveKVM is the command that calls kvm.Run in a process of its own.
	ProveKVM []string
	// Extend adds what else virt-handler does to its manager, before that starts; nil for nothing.
	Extend func(ctrl.Manager) error
}

func (o Options) validate() error {
	switch {
	case o.NodeName == "":
		return errors.New("the node's name is not set: give --node or the environment NODE_NAME")
	case o.KubeletRoot == "":
		return errors.New("the kubelet's root is not set: give --kubelet-root")
	case o.Namespace == "":
		return errors.New("the installation's namespace is not set: give --namespace or the environment POD_NAMESPACE")
	}
	if _, err := os.Stat(o.KubeletRoot); err != nil {
		return fmt.Errorf("looking for the kubelet's root (set --kubelet-root to where it is): %w", err)
	}
	return nil
}

// Run is virt-handler until ctx is done.
func Run(ctx context.Context, options Options) error {
	if err := options.validate(); err != nil {
		return err
	}
	mgr, err := newManager(options)
	if err != nil {
		return err
	}
	changes := make(chan event.GenericEvent)
	sessions := session.NewServer(options.KubeletRoot, func(vmiName types.NamespacedName) {
		select {
		case changes <- vmi.Changed(vmiName):
		case <-ctx.Done():
		}
	})
	server, err := api.New(ctx, api.Options{
		Address: options.APIAddress, NodeName: options.NodeName, Namespace: options.Namespace,
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(name), Sessions: sessions, DialVSOCK: vsock.Dial, TLS: options.TLS,
	})
	if err != nil {
		return err
	}
	heartbeat := &node.Heartbeat{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Cache: mgr.GetCache(), NodeName: options.NodeName, Certificate: server.Certificate(),
		KubeletRoot: options.KubeletRoot, Description: options.Description,
	}
	// Everything that this program runs:
	for _, part := range []manager.Runnable{
		sessions,
		&devices.Plugins{KubeletRoot: options.KubeletRoot, Devices: devices.Candidates, Prove: prover(options.ProveKVM), Cache: mgr.GetCache()},
		server,
		heartbeat,
	} {
		if err := mgr.Add(part); err != nil {
			return fmt.Errorf("adding %T: %w", part, err)
		}
	}
	if err := (&pod.Reconciler{Client: mgr.GetClient(), Sessions: sessions}).SetupWithManager(mgr); err != nil {
		return err
	}
	vmis := &vmi.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder(name),
		Sessions: sessions, NodeName: options.NodeName,
	}
	if err := vmis.SetupWithManager(mgr, changes); err != nil {
		return err
	}
	if err := serveHealth(mgr, heartbeat, options.Version); err != nil {
		return err
	}
	if options.Extend != nil {
		if err := options.Extend(mgr); err != nil {
			return fmt.Errorf("preparing %s: %w", name, err)
		}
	}
	if err := ctrlmetrics.Registry.Register(metrics.New(ctx, guests(mgr, sessions))); err != nil {
		return fmt.Errorf("registering the metrics of guests: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running %s: %w", name, err)
	}
	return nil
}

// newManager makes a manager that sees this node's launcher pods and VMIs only, and counts its requests.
func newManager(options Options) (ctrl.Manager, error) {
	config := rest.CopyConfig(options.Config)
	if err := metric.CountRequests(config); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(),
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: {
					Field: fields.OneTermEqualSelector("spec.nodeName", options.NodeName),
					Label: podsOfGuests(),
				},
				&v1.VirtualMachineInstance{}: {
					Label: labels.SelectorFromSet(labels.Set{v1.NodeNameLabel: options.NodeName}),
				},
			},
		},
		Metrics:                metric.Server(options.MetricsAddress, options.TLS),
		HealthProbeBindAddress: options.Address,
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, nil
}

// podsOfGuests selects launcher pods, and the pods that hold volumes which came later.
func podsOfGuests() labels.Selector {
	are, err := labels.NewRequirement(v1.AppLabel, selection.In, []string{"virt-launcher", names.AppAttachment})
	if err != nil {
		return labels.Nothing() // never: the names are constants, and the tests would see no pod
	}
	return labels.NewSelector().Add(*are)
}

// serveHealth serves /healthz, and /readyz from when the caches are filled, the controllers
// begin and virt-api can reach this handler.
func serveHealth(mgr ctrl.Manager, heartbeat *node.Heartbeat, version string) error {
	ready := func(*http.Request) error {
		select {
		case <-mgr.Elected():
		default:
			return errors.New("the caches are not filled yet")
		}
		if !heartbeat.Published() {
			return errors.New("the Node does not show the certificate yet")
		}
		return nil
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ready", ready)); err != nil {
		return fmt.Errorf("serving health: %w", err)
	}
	return errors.Join(
		metric.Register(metric.Component{Name: "virt_handler", Ready: ready, Version: version}),
		metric.Register(metric.Syncs()), metric.Register(metric.Panics()),
	)
}

// guests says who is measured: this node's VMIs, by their launchers.
func guests(mgr ctrl.Manager, sessions *session.Server) metrics.Options {
	return metrics.Options{
		Fresh: 5 * time.Second, // half of what is commonly between two scrapes at the least
		VMIs: func(ctx context.Context) ([]v1.VirtualMachineInstance, error) {
			list := &v1.VirtualMachineInstanceList{}
			select {
			case <-mgr.Elected():
			default:
				return nil, nil // the cache is not filled yet
			}
			if err := mgr.GetClient().List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
				return nil, fmt.Errorf("listing the node's VMIs: %w", err)
			}
			return list.Items, nil
		},
		Launcher: func(uid types.UID) metrics.Launcher {
			if found := sessions.OfVMI(uid); found != nil {
				return found
			}
			return nil
		},
	}
}

// prover proves KVM once, with command.
func prover(command []string) func(context.Context) error {
	return func(ctx context.Context) error {
		took, err := kvm.Prove(ctx, command...)
		if err != nil {
			return err
		}
		log.FromContext(ctx).Info("Hardware virtualization is proved", "took", took.Round(time.Millisecond).String())
		return nil
	}
}
