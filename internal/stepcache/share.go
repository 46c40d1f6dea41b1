package stepcache

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// ConfigFrom is the key of ConfigName with the namespaces whose entries this one uses as well,
// separated by commas. Each of them has to allow it: see ShareRole.
const ConfigFrom = "from"

// ShareRole is the ClusterRole that a namespace binds to those that may use its entries.
const ShareRole = "slipway-step-cache-share"

// AnnotationFrom on an entry is where it was brought from: namespace/name.
const AnnotationFrom = names.Domain + "step-cache-from"

// bringBound is how long an entry of another namespace may take to be brought.
const bringBound = 3 * time.Minute

// ParseFrom reads the namespaces of ConfigFrom.
func ParseFrom(value string) ([]string, error) {
	var namespaces []string
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return nil, fmt.Errorf("%s: %q is no namespace: %s; write for example images, base-images", ConfigFrom, name, strings.Join(wrong, ", "))
		}
		namespaces = append(namespaces, name)
	}
	return namespaces, nil
}

// sharing reads once which namespaces' entries this run may look at. That a namespace says
// nothing, or says it wrongly, is no reason to fail a step.
func (s *Store) sharing(ctx context.Context) []string {
	s.readFrom.Do(func() {
		config := &corev1.ConfigMap{}
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Run.Namespace, Name: ConfigName}, config)
		if apierrors.IsNotFound(err) {
			return
		}
		if err == nil {
			s.from, err = ParseFrom(config.Data[ConfigFrom])
		}
		if err != nil {
			s.Log.Warn("no step cache of another namespace is used", "configMap", ConfigName, "cause", err.Error())
		}
		s.from = slices.DeleteFunc(s.from, func(namespace string) bool { return namespace == s.Run.Namespace })
	})
	return s.from
}

// FindOrBring returns the newest entry that answers q, as Find does. When the namespace has none, one is
// brought from a namespace that shares its own. That it cannot be had is told, and no error.
func (s *Store) FindOrBring(ctx context.Context, q Query) (*Entry, error) {
	entry, err := s.Find(ctx, q)
	if entry != nil || err != nil {
		return entry, err
	}
	for _, namespace := range s.sharing(ctx) {
		there, err := s.findIn(ctx, namespace, q)
		if err != nil {
			s.tellUnshared(namespace, err)
			continue
		}
		if there == nil || s.refused[there.at()] {
			continue
		}
		if entry := s.bring(ctx, there); entry != nil {
			return entry, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("looking into the step caches of other namespaces: %w", err)
	}
	return nil, nil
}

// tellUnshared says why a namespace's entries cannot be looked at, and what allows it.
func (s *Store) tellUnshared(namespace string, err error) {
	if !apierrors.IsForbidden(err) {
		s.Log.Warn("the step cache of another namespace is not used", "namespace", namespace, "cause", err.Error())
		return
	}
	s.Log.Warn("the step cache of another namespace is not used: it is not shared with this one", "namespace", namespace, "allow", fmt.Sprintf(
		"kubectl create rolebinding step-cache-%[2]s -n %[1]s --clusterrole=%[3]s --group=system:serviceaccounts:%[2]s", namespace, s.Run.Namespace, ShareRole))
}

// bring makes an entry of this namespace that is a clone of another's; nil when that does not come about.
// Its content is checked as any entry's is, by whoever takes it.
func (s *Store) bring(ctx context.Context, there *Entry) *Entry {
	s.Log.Info("bringing an entry of another namespace's step cache", "namespace", there.Namespace, "entry", there.Name, "step", there.Step, "of", there.Filled)
	bounded, stop := context.WithTimeoutCause(ctx, bringBound, fmt.Errorf("it took longer than %s", bringBound))
	defer stop()
	entry, err := s.fill(bounded, nil, buildBrought(there, s.Run, s.now()))
	if err != nil {
		s.Log.Warn("the entry of another namespace is not used", "namespace", there.Namespace, "entry", there.Name, "cause", err.Error())
		return nil
	}
	return entry
}

// at names an entry among those of all namespaces.
func (e *Entry) at() string { return e.Namespace + "/" + e.Name }

// refuse remembers where an entry of no use was brought from, so that it is not brought again.
func (s *Store) refuse(e *Entry) {
	if e.From == "" {
		return
	}
	if s.refused == nil {
		s.refused = map[string]bool{}
	}
	s.refused[e.From] = true
}

// BroughtUntil is when an entry that is being brought is given up; zero for one that is not.
func (e *Entry) BroughtUntil() time.Time {
	if e.From == "" {
		return time.Time{}
	}
	return e.Made.Add(bringBound + clockSkew)
}

// buildBrought returns the DataVolume of an entry that is a clone of another namespace's: with the same
// key, content and age.
func buildBrought(there *Entry, run Run, now time.Time) *cdiv1.DataVolume {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: there.Namespace, Name: there.Name}}
	claim.Spec.AccessModes, claim.Spec.VolumeMode = there.AccessModes, new(there.Mode)
	if there.Class != "" {
		claim.Spec.StorageClassName = new(there.Class)
	}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: quantity(there.Size)}
	dv := buildEntry(filling{key: there.Key, step: there.Step, digest: there.Digest, source: claim, run: run, now: now})
	dv.Namespace = run.Namespace
	dv.Annotations[AnnotationFrom] = there.at()
	dv.Annotations[AnnotationFilled] = FormatTime(there.Filled)
	return dv
}
