package dataimportcron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/imageversion"
	"github.com/slipway-vm/slipway/internal/importschedule"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/registries"
)

// poll asks the source for its image when that is due: at once for a new DataImportCron, then by
// its schedule. One that fails is tried again, for a schedule may be of weeks.
func (r *Reconciler) poll(ctx context.Context, s *scope) error {
	if s.cron.Spec.Schedule == "" {
		s.nextPoll = time.Time{}
		return nil // somebody else writes the digest
	}
	schedule, err := importschedule.Parse(s.cron.Spec.Schedule)
	if err != nil { // it came by admission before that knew better
		s.unknown = "spec.schedule: " + err.Error()
		return nil
	}
	now, before := r.now(), r.polls.of(s.cron)
	due := now
	if !s.lastPoll.IsZero() {
		due = schedule.Next(s.lastPoll)
	}
	if before.failures > 0 {
		due, s.unknown = before.retry, before.message
	}
	s.nextPoll = due
	if wait := due.Sub(now); wait > 0 {
		s.sooner(wait)
		return nil
	}
	if allowed, err := r.authorize(ctx, s); err != nil || !allowed {
		s.forgetNext()
		return err
	}
	if !r.limit.TryAccept() {
		s.sooner(busyRetry)
		return nil
	}
	found, failed, err := r.ask(ctx, s)
	switch {
	case err != nil:
		return err
	case errors.Is(failed, errAsking):
		s.unknown = asking(s.cron)
		s.forgetNext()
		return nil
	case failed != nil:
		r.pollFailed(s, before, schedule.Next(now), failed)
		return nil
	}
	if found.digest != s.digest {
		log.FromContext(ctx).Info("There is a new image", "digest", found.digest, "before", s.digest)
	}
	s.newest, s.unknown, s.polled = found, "", true
	s.lastPoll, s.nextPoll = now.UTC().Truncate(time.Second), schedule.Next(now)
	r.polls.put(s.cron, attempt{at: s.lastPoll, found: found})
	s.sooner(s.nextPoll.Sub(now))
	return nil
}

// forgetNext has no next poll noted that is the first one and still goes on: it would be another time in every pass.
func (s *scope) forgetNext() {
	if s.lastPoll.IsZero() {
		s.nextPoll = time.Time{}
	}
}

// asking says who is asking for an image.
func asking(cron *cdiv1.DataImportCron) string {
	if datavolume.PulledByNode(cron.Spec.Template.Spec.Source) {
		return "a node pulls the image, for Pod " + pollName(cron.Name)
	}
	return fmt.Sprintf("Pod %s asks the source for its image", pollName(cron.Name))
}

// newest is the image that a source has.
type newest struct {
	digest string // empty when it is not known
	at     string // registry/path@digest of an ImageStream's; of other sources the template says it
}

// ask learns which image would be imported now. Failed is why the source does not tell it, err why it was not asked.
func (r *Reconciler) ask(ctx context.Context, s *scope) (found newest, failed, err error) {
	switch source := s.cron.Spec.Template.Spec.Source; {
	case ofStream(source):
		return r.askStream(ctx, s.cron)
	case datavolume.PulledByNode(source), namesSecrets(source):
		found.digest, failed = r.askByPod(ctx, s)
		return found, failed, nil
	case source != nil && source.PVC != nil:
		found.digest, failed, err = r.askClaim(ctx, s.cron)
		return found, failed, err
	}
	settings, err := r.registries(ctx)
	if err != nil {
		return newest{}, nil, err
	}
	found.digest, failed = r.source.digest(ctx, s.cron, settings)
	return found, failed, nil
}

// askClaim learns which claim has the name of the source: another one that gets it has another image.
func (r *Reconciler) askClaim(ctx context.Context, cron *cdiv1.DataImportCron) (digest string, failed, err error) {
	key, name := clonesource.Named(cron.Namespace, cron.Spec.Template.Spec.Source).Key(), cron.Spec.Template.Spec.Source.PVC.Name
	if key.Namespace != cron.Namespace {
		name = key.String()
	}
	claim, err := get(ctx, r.live, key, &corev1.PersistentVolumeClaim{})
	switch {
	case err != nil:
		return "", nil, err
	case claim == nil:
		return "", fmt.Errorf("PersistentVolumeClaim %s, which source.pvc names, does not exist; create it with an image", name), nil
	case claim.DeletionTimestamp != nil:
		return "", fmt.Errorf("PersistentVolumeClaim %s, which source.pvc names, is being deleted; another one of its name is a new image", name), nil
	}
	return imageversion.Digest("claim " + string(claim.UID)), nil, nil
}

// pollFailed notes a poll that failed, and when it is tried again: before next, when it is due anyway.
func (r *Reconciler) pollFailed(s *scope, before attempt, next time.Time, cause error) {
	now := r.now()
	wait := firstRetry << min(before.failures, 6)
	a := attempt{at: before.at, found: before.found, failures: before.failures + 1, message: cause.Error(), retry: now.Add(min(wait, lastRetry))}
	if next.Before(a.retry) {
		a.retry = next
	}
	r.polls.put(s.cron, a)
	s.unknown, s.nextPoll = a.message, a.retry
	s.sooner(a.retry.Sub(now))
	if before.message != a.message {
		r.events.Eventf(s.cron, nil, corev1.EventTypeWarning, reasonPollError, eventAction, "Asking the source for its image failed: %s", a.message)
	}
}

// registries says where images are looked for.
func (r *Reconciler) registries(ctx context.Context) (registries.Settings, error) {
	config, err := get(ctx, r.Client, types.NamespacedName{Name: names.CDIConfigName}, &cdiv1.CDIConfig{})
	if err != nil {
		return registries.Settings{}, err
	}
	if config == nil {
		config = &cdiv1.CDIConfig{}
	}
	return cdiconfig.Registries(ctx, r.Client, r.live, r.namespace, config.Spec.InsecureRegistries)
}

// attempt is what came of the last poll.
type attempt struct {
	uid      types.UID // of the DataImportCron, for another one may have got the name
	at       time.Time // of the last one that went well; zero for none since the controller began
	found    newest    // by that
	failures int       // how many failed since
	message  string    // why the last one did
	retry    time.Time // when it is tried again
}

// memory has what came of polls: the cache may show a DataImportCron as it was before one, and
// failures are noted nowhere else. Empty, everything is polled again when it is due.
type memory struct {
	mu   sync.Mutex
	last map[types.NamespacedName]attempt
}

func (m *memory) of(cron *cdiv1.DataImportCron) attempt {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.last[client.ObjectKeyFromObject(cron)]; a.uid == cron.UID {
		return a
	}
	return attempt{}
}

func (m *memory) put(cron *cdiv1.DataImportCron, a attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[types.NamespacedName]attempt{}
	}
	a.uid = cron.UID
	m.last[client.ObjectKeyFromObject(cron)] = a
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, key)
}

// describe words a failure to reach a server.
func describe(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
