// Package controllers is the table of contents of virt-controller: it lists every
// controller that `slipway controller` runs, and runs them.
package controllers

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/dataimportcron"
	"github.com/slipway-vm/slipway/controllers/datasource"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/hostpathprovisioner"
	"github.com/slipway-vm/slipway/controllers/leftover"
	"github.com/slipway-vm/slipway/controllers/metrics"
	"github.com/slipway-vm/slipway/controllers/node"
	"github.com/slipway-vm/slipway/controllers/objecttransfer"
	"github.com/slipway-vm/slipway/controllers/pool"
	"github.com/slipway-vm/slipway/controllers/populator"
	"github.com/slipway-vm/slipway/controllers/replicaset"
	"github.com/slipway-vm/slipway/controllers/stepcache"
	"github.com/slipway-vm/slipway/controllers/storageprofile"
	"github.com/slipway-vm/slipway/controllers/virtualmachine"
	"github.com/slipway-vm/slipway/controllers/virtualmachinebackup"
	"github.com/slipway-vm/slipway/controllers/virtualmachineclone"
	"github.com/slipway-vm/slipway/controllers/virtualmachineexport"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance"
	"github.com/slipway-vm/slipway/controllers/virtualmachinerestore"
	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/controllers/virtualmachinetemplaterequest"
	"github.com/slipway-vm/slipway/controllers/volumesnapshot"
	"github.com/slipway-vm/slipway/controllers/workloadupdate"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
)

// Options configure virt-controller.
type Options struct {
	// Limiter bounds all requests to the API server together; nil for RequestRate.
	Limiter flowcontrol.RateLimiter
	// LauncherImage holds virt-launcher, ImporterImage /slipway, GuestfsImage the guestfs tools.
	LauncherImage string
	ImporterImage string
	GuestfsImage  string
	// Namespace is where Slipway is installed; virt-controller's lease is there.
	Namespace string
	// ExportCertificate is a file with whom clients of virt-exportproxy are to trust, in PEM; it may come and change at any time. "" for none.
	ExportCertificate string
	// Identity is what the lease is held by. A process that is started again in the
	// same pod has the same, and goes on at once with the lease of the one before.
	Identity string
	// Version is the program's version.
	Version string
	// HealthAddress is where health is served, such as ":8080", MetricsAddress where metrics
	// are, with TLS; "0" serves none.
	HealthAddress, MetricsAddress string
	// DataLog is what those controllers log to that do CDI's work; nil for what all others log to.
	DataLog *logr.Logger
	// TLS is how TLS is spoken; nil for 1.2 and newer.
	TLS *tlspolicy.Policy
	// Extend adds what else virt-controller does to its manager, before that starts; nil for nothing.
	Extend func(ctrl.Manager) error
	// lease is how the lead is kept; slowLease when left out.
	lease lease
}

// validate says what is missing.
func (o Options) validate() error {
	var errs []error
	for _, required := range []struct{ flag, value string }{
		{"--launcher-image", o.LauncherImage}, {"--importer-image", o.ImporterImage}, {"--namespace", o.Namespace},
	} {
		if required.value == "" {
			errs = append(errs, fmt.Errorf("%s is not set; the operator sets it in Deployment virt-controller", required.flag))
		}
	}
	return errors.Join(errs...)
}

// setup adds every controller to mgr.
func setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	data := logging(mgr, options.DataLog)
	return errors.Join(
		virtualmachine.SetupWithManager(mgr, virtualmachine.Options{CopyImage: options.ImporterImage}),
		virtualmachineinstance.SetupWithManager(ctx, mgr, virtualmachineinstance.Options{
			LauncherImage: options.LauncherImage, ProvisionerImage: options.ImporterImage,
		}),
		replicaset.SetupWithManager(mgr),
		pool.SetupWithManager(mgr),
		workloadupdate.SetupWithManager(mgr),
		node.SetupWithManager(mgr),
		datavolume.SetupWithManager(data, datavolume.Options{ImporterImage: options.ImporterImage, Namespace: options.Namespace}),
		datasource.SetupWithManager(data, datasource.Options{}),
		cdiconfig.SetupWithManager(data, options.Namespace),
		storageprofile.SetupWithManager(data),
		dataimportcron.SetupWithManager(data, options.Namespace, options.ImporterImage),
		populator.SetupWithManager(data),
		objecttransfer.SetupWithManager(data),
		hostpathprovisioner.SetupWithManager(mgr, hostpathprovisioner.Options{
			Version: options.Version, Namespace: options.Namespace, Image: options.ImporterImage,
		}),
		volumesnapshot.SetupWithManager(mgr, volumesnapshot.Options{WhereServed: func(snapshots ctrl.Manager) error {
			return whereSnapshotsAreServed(snapshots, mgr, options.DataLog)
		}}),
		virtualmachinebackup.SetupWithManager(mgr),
		virtualmachineexport.SetupWithManager(mgr, virtualmachineexport.Options{Image: options.ImporterImage, Namespace: options.Namespace, Certificate: options.ExportCertificate}),
		stepcache.SetupWithManager(mgr),
		leftover.SetupWithManager(mgr),
		metrics.SetupWithManager(ctx, mgr, options.Namespace),
	)
}

// whereSnapshotsAreServed adds to snapshots the controllers that run while the cluster has the
// kinds of snapshots; mgr is the manager that always runs, and dataLog is as in Options.
func whereSnapshotsAreServed(snapshots, mgr ctrl.Manager, dataLog *logr.Logger) error {
	data := logging(snapshots, dataLog)
	return errors.Join(
		hostpathprovisioner.SetupSnapshotClass(snapshots),
		storageprofile.SetupSnapshotClasses(data),
		datavolume.SetupSnapshots(data, mgr),
		datasource.SetupSnapshots(data, mgr),
		virtualmachinesnapshot.SetupWithManager(snapshots, mgr),
		virtualmachinerestore.SetupWithManager(snapshots, mgr),
		virtualmachineclone.SetupWithManager(snapshots, mgr),
		virtualmachinetemplaterequest.SetupWithManager(snapshots, mgr),
	)
}

// logging is mgr with another logger for the controllers that are added to it; mgr itself when log is nil.
func logging(mgr ctrl.Manager, log *logr.Logger) ctrl.Manager {
	if log == nil {
		return mgr
	}
	return withLog{mgr, *log}
}

// withLog is a manager with another logger.
type withLog struct {
	ctrl.Manager

	log logr.Logger
}

// GetLogger returns what controllers log to.
func (w withLog) GetLogger() logr.Logger { return w.log }
