package leftover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
)

// Reasons of events.
const (
	reasonRemoved = "LeftoversRemoved"
	reasonKept    = "LeftoversKept"
	eventAction   = "Sweep"
)

// How long to wait before looking again: for pods that are being ended, which this program does
// not watch, and after an object changed while it was being removed.
const (
	pauseBusy    = 2 * time.Second
	pauseChanged = time.Second
)

// swept are the kinds that tasks make and a run may own. Machines go before their disks.
var swept = []schema.GroupVersionKind{
	{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"},
	{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: "DataSource"},
	{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: "DataVolume"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Group: "template.openshift.io", Version: "v1", Kind: "Template"},
	{Group: "template.kubevirt.io", Version: "v1beta1", Kind: "VirtualMachineTemplate"},
	{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
}

// sweeper removes what runs left behind.
type sweeper struct {
	live    client.Reader // reads past any cache
	writer  client.Client
	secrets kubernetes.Interface
	events  events.EventRecorder
}

// broom is one sweep after a run.
type broom struct {
	*sweeper
	run     client.Object
	uids    map[types.UID]bool // of the run's TaskRuns
	gone    map[types.UID]bool // of what this sweep removed
	removed []string           // what it removed
	kept    []string           // what it left, and why
	changed bool               // something changed meanwhile: look again
}

// sweep removes what the run owns, when nothing of the run works any more, and says in events
// what that was. It returns when to look again, zero for never.
func (s *sweeper) sweep(ctx context.Context, run client.Object, why string) (time.Duration, error) {
	uids, busy, err := s.members(ctx, run)
	if err != nil {
		return 0, err
	}
	if busy != "" {
		log.FromContext(ctx).V(1).Info("Waiting until the run has ended altogether", "busy", busy)
		return pauseBusy, nil
	}
	if len(uids) == 0 {
		return 0, nil
	}
	b := &broom{sweeper: s, run: run, uids: uids, gone: map[types.UID]bool{}}
	var problems []error
	for _, gvk := range swept {
		problems = append(problems, b.sweepKind(ctx, gvk))
	}
	problems = append(problems, b.sweepSecrets(ctx))
	b.tell(why)
	if b.changed {
		return pauseChanged, errors.Join(problems...)
	}
	return 0, errors.Join(problems...)
}

// tell writes the events.
func (b *broom) tell(why string) {
	if len(b.removed) > 0 {
		b.events.Eventf(b.run, nil, corev1.EventTypeNormal, reasonRemoved, eventAction, "Removed what the %s run left behind: %s", why, strings.Join(b.removed, ", "))
	}
	if len(b.kept) > 0 {
		b.events.Eventf(b.run, nil, corev1.EventTypeNormal, reasonKept, eventAction, "Kept of the %s run: %s", why, strings.Join(b.kept, ", "))
	}
}

// selector selects what the run's TaskRuns marked at its creation.
func (b *broom) selector(label string) (labels.Selector, error) {
	var uids []string
	for uid := range b.uids {
		uids = append(uids, string(uid))
	}
	slices.Sort(uids)
	of, err := labels.NewRequirement(label, selection.In, uids)
	if err != nil {
		return nil, fmt.Errorf("selecting what TaskRuns made: %w", err)
	}
	return labels.NewSelector().Add(*of), nil
}

func (b *broom) sweepKind(ctx context.Context, gvk schema.GroupVersionKind) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	err := b.live.List(ctx, list, client.InNamespace(b.run.GetNamespace()))
	if meta.IsNoMatchError(err) {
		return nil // the cluster does not serve it, so there is none
	}
	if err != nil {
		return fmt.Errorf("listing %s objects of run %s: %w", gvk.Kind, b.run.GetName(), err)
	}
	var problems []error
	for i := range list.Items {
		object := &list.Items[i]
		object.SetGroupVersionKind(gvk)
		problems = append(problems, b.sweepOne(ctx, object))
	}
	return errors.Join(problems...)
}

// sweepOne removes the object of the version that was seen, when nothing but the run owns or needs it.
func (b *broom) sweepOne(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	if object.DeletionTimestamp != nil || !b.own(object) {
		return nil
	}
	text := object.Kind + " " + object.Name
	user, err := b.userOf(ctx, object)
	if err != nil {
		return err
	}
	if user != "" {
		b.kept = append(b.kept, text+" ("+user+")")
		return nil
	}
	log.FromContext(ctx).Info("Removing what a run left behind", "object", text, "namespace", object.Namespace, "run", b.run.GetName())
	uid, version := object.UID, object.ResourceVersion
	err = b.writer.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		b.changed = true
		return nil
	case err != nil:
		return fmt.Errorf("removing %s of run %s: %w", text, b.run.GetName(), err)
	}
	b.gone[uid] = true
	b.removed = append(b.removed, text)
	return nil
}

// own says whether the run made the object and owns it, and all its owners are the run's or removed.
func (b *broom) own(object *metav1.PartialObjectMetadata) bool {
	if !b.made(object) {
		return false
	}
	ours := false
	for _, owner := range object.OwnerReferences {
		if !b.uids[owner.UID] && !b.gone[owner.UID] {
			return false
		}
		ours = ours || owner.Kind == "TaskRun" && b.uids[owner.UID]
	}
	return ours
}

// made says whether the object bears the mark of one of the run's tasks: a label, or an annotation on
// what keeps the labels of its manifest. Leases of the step cache are one for all runs, held by one at a time.
func (b *broom) made(object *metav1.PartialObjectMetadata) bool {
	if object.Kind == "Lease" {
		return object.Labels[names.LabelManagedBy] == names.ManagedBy && object.Labels[names.LabelComponent] == "step-cache"
	}
	mark := object.Labels[names.LabelTaskRun]
	if mark == "" {
		mark = object.Annotations[names.LabelTaskRun]
	}
	return b.uids[types.UID(mark)]
}

// sweepSecrets removes the Secrets that were made for the run alone. It needs no right to read
// Secrets: the API server selects them by the label that their task gave them together with their owner.
func (b *broom) sweepSecrets(ctx context.Context) error {
	selector, err := b.selector(names.LabelTemporary)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	raw, err := b.secrets.CoreV1().RESTClient().Delete().
		Namespace(b.run.GetNamespace()).Resource("secrets").
		VersionedParams(&metav1.ListOptions{LabelSelector: selector.String()}, scheme.ParameterCodec).
		Body(&metav1.DeleteOptions{PropagationPolicy: &background}).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("removing the Secrets of run %s: %w", b.run.GetName(), err)
	}
	list := &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(raw, list); err != nil {
		return fmt.Errorf("reading which Secrets of run %s were removed: %w", b.run.GetName(), err)
	}
	for i := range list.Items {
		b.removed = append(b.removed, "Secret "+list.Items[i].Name)
	}
	return nil
}
