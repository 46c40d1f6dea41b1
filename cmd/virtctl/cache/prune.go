package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
)

// pruning is what the flags of prune say.
type pruning struct {
	olderThan time.Duration
	keep      int
	maxSize   string
	dryRun    bool
}

func newPruneCommand(cluster Cluster, now func() time.Time) *cobra.Command {
	p := pruning{keep: -1}
	command := &cobra.Command{
		Use:   "prune",
		Short: "Deletes entries: what the namespace's policy does not keep, or what the flags say",
		Long: `Without flags, the entries go that the namespace's policy (ConfigMap ` + stepcache.ConfigName + `, or its defaults) does not keep;
Slipway's controller does the same by itself. With flags, they alone say what is kept. The least recently used go first. Entries that
a run reads at the moment or took within the last ` + stepcache.Grace.String() + ` stay, as those do that are being filled.`,
		Example: `  # What would go that nobody used for a week?
  virtctl cache prune -n builds --older-than 168h --dry-run

  # Keep the five that were used last:
  virtctl cache prune -n builds --keep 5

  # Empty the cache:
  virtctl cache prune -n builds --keep 0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace, err := cluster.Namespace()
			if err != nil {
				return err
			}
			c, err := cluster.Client()
			if err != nil {
				return err
			}
			flags := cmd.Flags()
			given := flags.Changed("older-than") || flags.Changed("keep") || flags.Changed("max-size")
			policy, err := p.policy(cmd.Context(), c, namespace, given)
			if err != nil {
				return err
			}
			found, err := inUse(cmd.Context(), c, namespace)
			if err != nil {
				return err
			}
			victims, _ := stepcache.Victims(found, policy, now())
			if len(victims) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "Nothing to delete, %d entries stay.\n", len(found))
				return nil
			}
			return remove(cmd.Context(), cmd.OutOrStdout(), c, victims, p.dryRun)
		},
	}
	command.Flags().DurationVar(&p.olderThan, "older-than", 0, "delete entries that were not used for so long, such as 168h")
	command.Flags().IntVar(&p.keep, "keep", -1, "keep so many entries")
	command.Flags().StringVar(&p.maxSize, "max-size", "", "keep entries whose claims ask for so much together, such as 100Gi")
	command.Flags().BoolVar(&p.dryRun, "dry-run", false, "only say what would be deleted")
	return command
}

// policy is what the flags say, or else that of the namespace.
func (p pruning) policy(ctx context.Context, c client.Client, namespace string, given bool) (stepcache.Policy, error) {
	if !given {
		return namespacePolicy(ctx, c, namespace)
	}
	policy := stepcache.Policy{Count: p.keep, Age: -1, Size: -1}
	switch {
	case p.keep < -1:
		return policy, fmt.Errorf("--keep: %d is no number of entries; write 0 or more", p.keep)
	case p.olderThan < 0:
		return policy, fmt.Errorf("--older-than: %s is negative; write for example 168h", p.olderThan)
	case p.olderThan > 0:
		policy.Age = p.olderThan
	}
	if p.maxSize != "" {
		size, err := resource.ParseQuantity(p.maxSize)
		if err != nil || size.Sign() < 0 {
			return policy, fmt.Errorf("--max-size: %q is no size; write for example 100Gi", p.maxSize)
		}
		policy.Size = size.Value()
	}
	return policy, nil
}

func namespacePolicy(ctx context.Context, c client.Client, namespace string) (stepcache.Policy, error) {
	config := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: namespace, Name: stepcache.ConfigName}
	if err := c.Get(ctx, key, config); apierrors.IsNotFound(err) {
		return stepcache.DefaultPolicy(), nil
	} else if err != nil {
		return stepcache.Policy{}, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	policy, err := stepcache.ParsePolicy(config.Data)
	if err != nil {
		return policy, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	return policy, nil
}

// remove deletes the victims, of the version that was seen: what a run takes meanwhile stays.
func remove(ctx context.Context, out io.Writer, c client.Client, victims []stepcache.Victim, dryRun bool) error {
	var errs []error
	for _, victim := range victims {
		words := "deleted"
		if dryRun {
			words = "would be deleted"
		} else {
			dv := &cdiv1.DataVolume{}
			dv.Namespace, dv.Name = victim.Namespace, victim.Name
			err := c.Delete(ctx, dv, client.Preconditions{UID: &victim.UID, ResourceVersion: &victim.ResourceVersion})
			switch {
			case apierrors.IsConflict(err):
				words = "stays, it changed meanwhile"
			case client.IgnoreNotFound(err) != nil:
				errs = append(errs, fmt.Errorf("deleting entry %s: %w", victim.Name, err))
				continue
			}
		}
		fmt.Fprintf(out, "%s (%s) %s: %s\n", victim.Name, victim.Step, words, victim.Why)
	}
	return errors.Join(errs...)
}

// inUse reads the entries of a namespace, with what is in use at the moment.
func inUse(ctx context.Context, c client.Client, namespace string) ([]stepcache.Entry, error) {
	var volumes cdiv1.DataVolumeList
	if err := c.List(ctx, &volumes, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the DataVolumes of %s: %w", namespace, err)
	}
	var workers corev1.PodList
	if err := c.List(ctx, &workers, client.InNamespace(namespace), client.MatchingLabels{names.LabelPod: stepcache.KindWorker}); err != nil {
		return nil, fmt.Errorf("listing the pods that read entries in %s: %w", namespace, err)
	}
	found := stepcache.Entries(volumes.Items)
	stepcache.MarkInUse(found, volumes.Items, workers.Items)
	return found, nil
}
