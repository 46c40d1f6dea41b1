package datavolume

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/upload"
)

// isUpload says whether somebody will send dv's disk.
func isUpload(dv *cdiv1.DataVolume) bool {
	return dv.Spec.Source != nil && dv.Spec.Source.Upload != nil
}

// podName is the name of the pod that fills the claim of a DataVolume.
func (p plan) podName(dv string) string {
	if p.kind == kindUpload {
		return upload.ServerName(dv)
	}
	return PodName(dv)
}

// prepareUpload adds to input what the pod of an upload server needs.
func (r *Reconciler) prepareUpload(ctx context.Context, s *scope, input *podInput) error {
	if s.plan.kind != kindUpload {
		return nil
	}
	data, err := r.uploads.current(ctx)
	if err != nil {
		return err
	}
	input.Upload = &uploadInput{
		Secret:    upload.ServerName(s.dv.Name) + "-" + strings.ToLower(rand.Text()[:8]),
		Authority: certs.Authority(data), TLS: s.tls.Args(),
	}
	return nil
}

// serveUpload lets the upload server be reached: it gets a certificate and a Service, and the claim
// says how far its pod is and when an image may come, which clients of CDI wait for. A server whose authority was replaced is replaced, too, unless an
// image is coming.
func (r *Reconciler) serveUpload(ctx context.Context, s *scope) error {
	if s.plan.kind != kindUpload || s.pod == nil {
		return nil
	}
	leaving := s.pod.DeletionTimestamp != nil
	if !leaving && s.told && s.progress.Done == 0 {
		replaced, err := r.replaceServer(ctx, s)
		if err != nil {
			return err
		}
		leaving = replaced
	}
	if leaving {
		return r.noteServer(ctx, s, false)
	}
	if err := r.certifyServer(ctx, s); err != nil {
		return err
	}
	reached, err := r.reachServer(ctx, s)
	if err != nil {
		return err
	}
	return r.noteServer(ctx, s, reached && isReady(s.pod))
}

// noteServer notes on the claim how far the upload server is, and whether an image may come.
func (r *Reconciler) noteServer(ctx context.Context, s *scope, ready bool) error {
	notes := map[string]string{upload.AnnotationReady: strconv.FormatBool(ready), AnnotationPodPhase: string(corev1.PodPending)}
	if s.pod != nil && s.pod.Status.Phase == corev1.PodRunning { // how it ends noteEnd says
		notes[AnnotationPodPhase] = string(corev1.PodRunning)
	}
	if s.claim.Annotations[upload.AnnotationReady] == notes[upload.AnnotationReady] && s.claim.Annotations[AnnotationPodPhase] == notes[AnnotationPodPhase] {
		return nil
	}
	err := apply.Fields(ctx, r.Client, s.claim, managerImporter, map[string]any{"metadata": map[string]any{"annotations": notes}})
	if err != nil {
		return fmt.Errorf("noting on claim %s whether an image may come: %w", s.claim.Name, err)
	}
	setAll(&s.claim.Annotations, notes)
	return nil
}

// replaceServer deletes a server that does not know the proxy's next certificate, or speaks TLS as was said before.
func (r *Reconciler) replaceServer(ctx context.Context, s *scope) (bool, error) {
	newest := r.uploads.authority()
	current := newest == "" || s.pod.Annotations[annotationAuthority] == newest
	if current && s.pod.Annotations[annotationTLS] == strings.Join(s.tls.Args(), " ") {
		return false, nil
	}
	log.FromContext(ctx).Info("Replacing the upload server, its authority or its TLS is an older one", "pod", s.pod.Name)
	if err := r.Delete(ctx, s.pod, client.Preconditions{UID: &s.pod.UID}); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting pod %s: %w", s.pod.Name, err)
	}
	return true, nil
}

// certifyServer makes the certificate that the server's pod waits for before it starts.
func (r *Reconciler) certifyServer(ctx context.Context, s *scope) error {
	name := secretOf(s.pod)
	if name == "" || s.pod.Status.Phase != corev1.PodPending {
		return nil
	}
	data, err := r.uploads.current(ctx)
	if err != nil {
		return err
	}
	issued, err := certs.Issue(data, []string{upload.ServerHost(s.dv.Namespace, s.dv.Name)}, r.now())
	if err != nil {
		return fmt.Errorf("making the certificate of pod %s: %w", s.pod.Name, err)
	}
	return r.createBeside(ctx, buildUploadSecret(s.pod, name, issued))
}

// reachServer makes the Service that leads to the server, also in the place of one that somebody has deleted, and reports
// whether there is none of its name that leads elsewhere.
func (r *Reconciler) reachServer(ctx context.Context, s *scope) (bool, error) {
	service := buildUploadService(s.dv)
	there, err := get(ctx, r.live, client.ObjectKeyFromObject(service), &corev1.Service{})
	switch {
	case err != nil:
		return false, err
	case there == nil:
		return true, r.createBeside(ctx, service)
	case !metav1.IsControlledBy(there, s.dv):
		s.waiting = &obstacle{reasonExists, fmt.Sprintf("Service %s exists already and is none of Slipway's; an image can be sent once it is gone", service.Name)}
		s.result.RequeueAfter = takenRetry
		return false, nil
	}
	return true, nil
}

// createBeside creates object, unless it is there.
func (r *Reconciler) createBeside(ctx context.Context, object client.Object) error {
	err := r.Create(ctx, object, client.FieldOwner(names.ManagerData))
	switch {
	case namespace.Ending(err):
		return steps.ErrDone // the DataVolume goes too
	case client.IgnoreAlreadyExists(err) != nil:
		return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// endUpload takes away the Service of a server that has done its work; what else it had goes with its pod.
func (r *Reconciler) endUpload(ctx context.Context, s *scope) error {
	if s.plan.kind != kindUpload || !s.done() {
		return nil
	}
	key := types.NamespacedName{Namespace: s.dv.Namespace, Name: upload.ServerName(s.dv.Name)}
	service, err := get(ctx, r.live, key, &corev1.Service{})
	if err != nil || service == nil || !metav1.IsControlledBy(service, s.dv) {
		return err
	}
	if err := r.Delete(ctx, service, client.Preconditions{UID: &service.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Service %s: %w", key.Name, err)
	}
	return nil
}

// uploadPhase is the phase of a DataVolume whose upload server exists.
func uploadPhase(s *scope) cdiv1.DataVolumePhase {
	if s.pod.DeletionTimestamp == nil && isReady(s.pod) {
		return cdiv1.UploadReady
	}
	return cdiv1.UploadScheduled
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
