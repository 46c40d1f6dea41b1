// Package scheme knows every API type that Slipway reads or writes.
package scheme

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	routev1 "github.com/openshift/api/route/v1"
	templatev1 "github.com/openshift/api/template/v1"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	vmexportv1 "kubevirt.io/api/export/v1"
	vmexportv1beta1 "kubevirt.io/api/export/v1beta1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
	vmsnapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	cdiupload "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	hcov1beta1 "github.com/slipway-vm/slipway/internal/api/hco/v1beta1"
	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	sspv1beta3 "github.com/slipway-vm/slipway/internal/api/ssp/v1beta3"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
)

// New returns a scheme with the types of Kubernetes, of the field's APIs and our own.
func New() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		virtv1.AddToScheme, instancetypev1beta1.AddToScheme, poolv1beta1.AddToScheme, vmsnapshotv1.AddToScheme,
		backupv1.AddToScheme, clonev1.AddToScheme, vmexportv1beta1.AddToScheme, vmexportv1.AddToScheme,
		cdiv1.AddToScheme, cdiupload.AddToScheme,
		templatev1.AddToScheme, routev1.AddToScheme, tektonv1.AddToScheme, snapshotv1.AddToScheme,
		hcov1.AddToScheme, hcov1beta1.AddToScheme, hppv1beta1.AddToScheme, sspv1beta3.AddToScheme, vmtemplatev1beta1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}
