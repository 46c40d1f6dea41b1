package restorestepcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	templatev1 "github.com/openshift/api/template/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tasks/cached"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// annotationRecipe on a DataSource says what was published: a recipe's key, "@" and the claim.
const annotationRecipe = names.Domain + "step-cache-recipe"

// chain is what the pipeline would do: import the volume, then the steps.
type chain struct {
	call    *declare.Call
	store   *stepcache.Store
	options cached.Options
	volume  *cdiv1.DataVolume
	steps   []step

	// By look: what is known of this run.
	begun time.Time
	host  *stepcache.Host
	keys  keys
}

// keys are the parts of the chain's keys that are known before any disk is.
type keys struct {
	source stepcache.Key
	steps  []stepcache.Step
	recipe stepcache.Key
}

// found is what the task found.
type found struct {
	volume   string
	upToDate bool
	imported bool
	steps    int
	recipe   stepcache.Key
	digest   string
}

// look finds out what is there, and restores the last disk that is.
func (c *chain) look(ctx context.Context, now time.Time) (found, error) {
	c.begun = now
	f := found{volume: c.volume.Name}
	if err := c.readKeys(ctx); err != nil {
		return f, c.unused(ctx, err)
	}
	f.recipe = c.keys.recipe
	if c.options.Mode != cached.Auto {
		return f, nil // every step is to do; with refresh each one keeps its result anew
	}
	published, err := c.published(ctx)
	if err != nil {
		return f, c.unused(ctx, err)
	}
	if published != nil {
		f.volume, f.upToDate, f.imported, f.steps = published.Name, true, true, len(c.steps)
		f.digest = published.Annotations[names.AnnotationDigest]
		return f, nil
	}
	for {
		entry, done, since, err := c.last(ctx)
		if entry == nil || err != nil {
			return f, c.unused(ctx, err)
		}
		made, err := c.restore(ctx, entry, since)
		if err == nil {
			f.imported, f.steps, f.digest = true, done, entry.Digest
			return f, nil
		}
		if made != nil {
			if err := cached.Discard(ctx, c.call.Client, made); err != nil {
				return f, err
			}
		}
		if !errors.Is(err, stepcache.ErrPoisoned) {
			return f, c.unused(ctx, err)
		}
		c.call.Log.Warn("removing an entry of the step cache", "entry", entry.Name, "cause", err.Error())
		if err := c.store.Remove(ctx, entry); err != nil {
			return f, err
		}
	}
}

// unused tells why nothing is taken from the cache; the error is returned only when the time is over.
func (c *chain) unused(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	c.call.Log.Warn("the step cache is not used", "cause", err.Error())
	return nil
}

// readKeys computes what is known of the keys without a disk.
func (c *chain) readKeys(ctx context.Context) error {
	var err error
	if c.host, err = cached.Host(ctx, c.store); err != nil {
		return err
	}
	inputs, err := stepcache.Inputs(cached.DataFolders()...)
	if err != nil {
		return err
	}
	for _, s := range c.steps {
		c.keys.steps = append(c.keys.steps, cached.NewStep(s.tool, s.options, s.commands, c.host, inputs))
	}
	from, ok := stepcache.ImportOf(c.volume)
	if !ok {
		return fmt.Errorf("%w: its volume has no size", stepcache.ErrUncacheable)
	}
	if from, err = from.Probed(ctx); err != nil {
		return err
	}
	if c.keys.source, err = from.Key(); err != nil {
		return err
	}
	also, err := c.also(ctx)
	if err != nil {
		return err
	}
	c.keys.recipe, err = stepcache.Recipe{Source: c.keys.source, Steps: c.keys.steps, Also: also}.Key()
	return err
}

// also lists what else decides what is published.
func (c *chain) also(ctx context.Context) ([]string, error) {
	spec, err := json.Marshal(c.volume.Spec)
	if err != nil {
		return nil, fmt.Errorf("reading the volume's spec: %w", err)
	}
	source := c.volume.Spec.Source.HTTP
	if source.Checksum != "" { // then where the file comes from does not count, but which class of volume it gets does
		other := c.volume.Spec.DeepCopy()
		other.Source.HTTP.URL = ""
		if spec, err = json.Marshal(other); err != nil {
			return nil, fmt.Errorf("reading the volume's spec: %w", err)
		}
	}
	also := append([]string{string(spec)}, c.call.Array("recipe")...)
	name := c.call.String("template")
	if name == "" {
		return append(also, ""), nil
	}
	template := &templatev1.Template{}
	key := client.ObjectKey{Namespace: c.call.Namespace, Name: name}
	if err := c.call.Client.Get(ctx, key, template); err != nil {
		return nil, fmt.Errorf("reading Template %s: %w", key, err)
	}
	content, err := json.Marshal([]any{template.Objects, template.Parameters, template.ObjectLabels})
	if err != nil {
		return nil, fmt.Errorf("reading Template %s: %w", key, err)
	}
	return append(also, string(content)), nil
}

// published returns the claim behind the DataSource when it is what this chain would publish.
func (c *chain) published(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
	name := c.call.String("dataSource")
	if name == "" {
		return nil, nil
	}
	source := &cdiv1.DataSource{}
	key := client.ObjectKey{Namespace: c.call.Namespace, Name: name}
	if err := c.call.Client.Get(ctx, key, source); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading DataSource %s: %w", key, err)
	}
	from := source.Spec.Source.PVC
	if source.DeletionTimestamp != nil || from == nil || from.Namespace != "" && from.Namespace != c.call.Namespace ||
		source.Annotations[annotationRecipe] != string(c.keys.recipe)+"@"+from.Name {
		return nil, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	key.Name = from.Name
	if err := c.call.Client.Get(ctx, key, claim); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading claim %s: %w", key, err)
	}
	done := stepcache.ReadTime(claim, stepcache.AnnotationFilled, claim.CreationTimestamp.Time)
	if claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound || done.Before(c.options.Since(c.begun)) {
		return nil, nil
	}
	return claim, nil
}

// last returns the entry of the last step that is there, how many steps that is, and when the
// first of those steps was done; no entry when not even the import's is there.
func (c *chain) last(ctx context.Context) (entry *stepcache.Entry, done int, since time.Time, err error) {
	query := stepcache.Query{Key: c.keys.source, Class: cached.Class(c.volume), Mode: cached.VolumeMode(c.volume)}
	entry, err = c.find(ctx, query)
	if entry == nil || err != nil {
		return nil, 0, since, err
	}
	for n, s := range c.keys.steps {
		s.Base = entry.Digest
		if query.Key, err = s.Key(); err != nil {
			return nil, 0, since, err
		}
		query.Since = c.options.Since(c.begun)
		next, err := c.find(ctx, query)
		if err != nil {
			return nil, 0, since, err
		}
		if next == nil {
			break
		}
		entry, done = next, n+1
		if since.IsZero() || entry.Filled.Before(since) {
			since = entry.Filled
		}
	}
	return entry, done, since, nil
}

// find finds an entry and tells that it is in use; an entry that is gone meanwhile is none.
func (c *chain) find(ctx context.Context, query stepcache.Query) (*stepcache.Entry, error) {
	entry, err := c.store.FindOrBring(ctx, query)
	if entry == nil || err != nil {
		return nil, err
	}
	if ok, err := c.store.Use(ctx, entry); !ok || err != nil {
		return nil, err
	}
	return entry, nil
}

// restore makes the volume as a clone of the entry.
func (c *chain) restore(ctx context.Context, entry *stepcache.Entry, since time.Time) (*cdiv1.DataVolume, error) {
	c.call.Log.Info("restoring from the step cache", "entry", entry.Name, "step", entry.Step, "of", entry.Filled, "run", entry.Run)
	return cached.Clone(ctx, c.store, c.host, entry, func(ctx context.Context) (*cdiv1.DataVolume, error) {
		clone := stepcache.Restored(c.volume, entry)
		if clone.Annotations == nil {
			clone.Annotations = map[string]string{}
		}
		clone.Annotations[names.AnnotationBind] = "true" // it is waited for, before any pod uses it
		if !since.IsZero() {
			clone.Annotations[stepcache.AnnotationFilled] = stepcache.FormatTime(since)
		}
		if err := c.create(ctx, clone); err != nil {
			return nil, err
		}
		return clone, c.store.AwaitClone(ctx, clone)
	})
}

// create creates the volume anew, in place of what an earlier try of this run has left.
func (c *chain) create(ctx context.Context, clone *cdiv1.DataVolume) error {
	err := c.call.Client.Create(ctx, clone, client.FieldOwner(stepcache.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		var earlier cdiv1.DataVolumeList
		err := c.call.Client.List(ctx, &earlier, client.InNamespace(clone.Namespace), client.MatchingLabels{labelRun: string(c.call.TaskRunUID)})
		if err != nil {
			return fmt.Errorf("looking for what an earlier try made: %w", err)
		}
		for n := range earlier.Items {
			if earlier.Items[n].Name == clone.Name {
				if err := cached.Discard(ctx, c.call.Client, &earlier.Items[n]); err != nil {
					return err
				}
				clone.ResourceVersion, clone.UID = "", ""
				return c.create(ctx, clone)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("creating DataVolume %s/%s: %w", clone.Namespace, clone.Name, err)
	}
	return nil
}
