package start

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// Labels of the volumes that golden images are in.
const (
	// LabelImage names the golden image; the pipeline golden-image puts it on.
	LabelImage = names.Domain + "golden-image"
	// LabelRefresh names the refresh that made the volume; only such volumes are ever deleted.
	LabelRefresh = names.Domain + "golden-image-refresh"
)

// What of golden-image's runs is read: a parameter, and results.
const (
	paramImage     = "imageName"
	resultVolume   = "volume"
	resultUpToDate = "upToDate"
)

// image is the golden image that the run makes; empty when it makes none.
func image(run *tektonv1.PipelineRun) string {
	for _, p := range run.Spec.Params {
		if p.Name == paramImage {
			return p.Value.StringVal
		}
	}
	return ""
}

// retention deletes the volumes of earlier nights.
type retention struct {
	client  client.Client
	log     *slog.Logger
	run     *tektonv1.PipelineRun
	refresh string
	keep    int
}

// retain marks what the run made, and deletes the refresh's older volumes that nothing needs.
func (r *retention) retain(ctx context.Context) error {
	if err := r.mark(ctx); err != nil {
		return err
	}
	var volumes cdiv1.DataVolumeList
	of := client.MatchingLabels{LabelImage: image(r.run), LabelRefresh: r.refresh}
	if err := r.client.List(ctx, &volumes, client.InNamespace(r.run.Namespace), of); err != nil {
		return fmt.Errorf("listing the volumes of earlier nights: %w", err)
	}
	old := older(volumes.Items, r.keep)
	if len(old) == 0 {
		return nil
	}
	needed, err := r.needed(ctx)
	if err != nil {
		return err
	}
	for _, dv := range old {
		if why := needed[dv.Name]; why != "" {
			r.log.Info("An older volume stays", "volume", dv.Name, "because", why)
			continue
		}
		if err := r.remove(ctx, &dv); err != nil {
			return err
		}
	}
	return nil
}

// mark labels the volume that the run made. One that was published before is not the run's.
func (r *retention) mark(ctx context.Context) error {
	results := map[string]string{}
	for _, result := range r.run.Status.Results {
		results[result.Name] = result.Value.StringVal
	}
	name := results[resultVolume]
	if name == "" || results[resultUpToDate] == "true" {
		return nil
	}
	dv, key := &cdiv1.DataVolume{}, types.NamespacedName{Namespace: r.run.Namespace, Name: name}
	if err := r.client.Get(ctx, key, dv); err != nil {
		return fmt.Errorf("reading the volume that the run made: %w", err)
	}
	if dv.Labels[LabelImage] != image(r.run) || dv.Labels[LabelRefresh] == r.refresh {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:%q}}}`, dv.UID, LabelRefresh, r.refresh)
	if err := r.client.Patch(ctx, dv, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("marking DataVolume %s as one of refresh %s: %w", key, r.refresh, err)
	}
	return nil
}

// older are the volumes beyond the newest ones that are kept.
func older(volumes []cdiv1.DataVolume, keep int) []cdiv1.DataVolume {
	volumes = slices.DeleteFunc(volumes, func(dv cdiv1.DataVolume) bool { return dv.DeletionTimestamp != nil })
	slices.SortFunc(volumes, func(a, b cdiv1.DataVolume) int {
		if order := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); order != 0 {
			return order
		}
		return slices.Compare([]byte(a.Name), []byte(b.Name))
	})
	return volumes[min(keep, len(volumes)):]
}

// needed says of claims of the namespace why they must stay.
func (r *retention) needed(ctx context.Context) (map[string]string, error) {
	sources, err := r.sources(ctx)
	if err != nil {
		return nil, err
	}
	var volumes cdiv1.DataVolumeList
	var claims corev1.PersistentVolumeClaimList
	var machines virtv1.VirtualMachineList
	var pods corev1.PodList
	for what, list := range map[string]client.ObjectList{"DataVolumes": &volumes, "claims": &claims, "VirtualMachines": &machines, "pods": &pods} {
		if err := r.client.List(ctx, list, client.InNamespace(r.run.Namespace)); err != nil {
			return nil, fmt.Errorf("looking for %s that need a volume of an earlier night: %w", what, err)
		}
	}
	why := map[string]string{}
	usedByPods(why, pods.Items)
	usedByMachines(why, machines.Items)
	cloned(why, r.run.Namespace, volumes.Items, claims.Items)
	for _, source := range sources {
		if from := source.Spec.Source.PVC; from != nil && (from.Namespace == r.run.Namespace || from.Namespace == "" && source.Namespace == r.run.Namespace) {
			why[from.Name] = fmt.Sprintf("DataSource %s/%s names it", source.Namespace, source.Name)
		}
	}
	return why, nil
}

// sources are the DataSources of the cluster, or of this namespace where no others may be listed.
func (r *retention) sources(ctx context.Context) ([]cdiv1.DataSource, error) {
	var list cdiv1.DataSourceList
	err := r.client.List(ctx, &list)
	if apierrors.IsForbidden(err) {
		r.log.Info("DataSources of other namespaces are not looked at; README.md tells which right that takes", "cause", err.Error())
		err = r.client.List(ctx, &list, client.InNamespace(r.run.Namespace))
	}
	if err != nil {
		return nil, fmt.Errorf("looking for DataSources that name a volume of an earlier night: %w", err)
	}
	return list.Items, nil
}

func usedByPods(why map[string]string, pods []corev1.Pod) {
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				why[volume.PersistentVolumeClaim.ClaimName] = "pod " + pod.Name + " uses it"
			}
		}
	}
}

func usedByMachines(why map[string]string, machines []virtv1.VirtualMachine) {
	for _, vm := range machines {
		if vm.Spec.Template == nil {
			continue
		}
		for _, volume := range vm.Spec.Template.Spec.Volumes {
			switch {
			case volume.DataVolume != nil:
				why[volume.DataVolume.Name] = "VirtualMachine " + vm.Name + " uses it"
			case volume.PersistentVolumeClaim != nil:
				why[volume.PersistentVolumeClaim.ClaimName] = "VirtualMachine " + vm.Name + " uses it"
			case volume.Ephemeral != nil && volume.Ephemeral.PersistentVolumeClaim != nil:
				why[volume.Ephemeral.PersistentVolumeClaim.ClaimName] = "VirtualMachine " + vm.Name + " uses it"
			}
		}
	}
}

// cloned are the claims of which a clone is not complete.
func cloned(why map[string]string, namespace string, volumes []cdiv1.DataVolume, claims []corev1.PersistentVolumeClaim) {
	for _, dv := range volumes {
		ended := dv.Status.Phase == cdiv1.Succeeded || dv.Status.Phase == cdiv1.Failed
		if from := dv.Spec.Source; !ended && from != nil && from.PVC != nil && (from.PVC.Namespace == "" || from.PVC.Namespace == namespace) {
			why[from.PVC.Name] = "DataVolume " + dv.Name + " is being cloned from it"
		}
	}
	for _, claim := range claims {
		if from := claim.Spec.DataSource; from != nil && from.Kind == "PersistentVolumeClaim" && claim.Status.Phase != corev1.ClaimBound {
			why[from.Name] = "claim " + claim.Name + " is being cloned from it"
		}
	}
}

// remove deletes a volume as it was seen; one that changed meanwhile stays until the next night.
func (r *retention) remove(ctx context.Context, dv *cdiv1.DataVolume) error {
	err := r.client.Delete(ctx, dv, client.Preconditions{UID: &dv.UID, ResourceVersion: &dv.ResourceVersion})
	switch {
	case apierrors.IsConflict(err):
		r.log.Info("An older volume stays", "volume", dv.Name, "because", "it changed meanwhile")
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("deleting the volume %s of an earlier night: %w", dv.Name, err)
	default:
		r.log.Info("Deleted the volume of an earlier night", "volume", dv.Name, "of", dv.CreationTimestamp.Time, "kept", r.keep)
	}
	return nil
}
