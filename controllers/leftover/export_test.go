package leftover

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SweepAsSeen removes the object of a run's TaskRun as it was seen earlier, and says whether it changed since.
func SweepAsSeen(ctx context.Context, c client.Client, run client.Object, by types.UID, seen *metav1.PartialObjectMetadata) (changed bool, err error) {
	b := &broom{sweeper: &sweeper{live: c, writer: c}, run: run, uids: map[types.UID]bool{by: true}, gone: map[types.UID]bool{}}
	err = b.sweepOne(ctx, seen)
	return b.changed, err
}
