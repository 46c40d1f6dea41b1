//go:build integration

package objecttransfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// errKilled is what a controller meets that is killed.
var errKilled = errors.New("killed")

// faults does something before one of a controller's writes.
type faults struct {
	client.WithWatch
	at     int // the number of the write, from 1; 0 for none
	strike func() error
	count  int
}

func (f *faults) write(do func() error) error {
	f.count++
	if f.count == f.at {
		if err := f.strike(); err != nil {
			return err
		}
	}
	return do()
}

// client is the client of a controller that f strikes.
func (f *faults) client() client.Client {
	return interceptor.NewClient(f.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return f.write(func() error { return c.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return f.write(func() error { return c.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return f.write(func() error { return c.Patch(ctx, object, patch, options...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, name string, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			return f.write(func() error { return c.SubResource(name).Apply(ctx, object, options...) })
		},
	})
}

func controller(c client.Client, live client.Reader) *Reconciler {
	return &Reconciler{Client: c, live: live, events: events.NewFakeRecorder(1000), now: time.Now}
}

// live drives the transfer by hand until ended, by a controller that may be killed; another one goes on then.
func (w *world) live(f *faults, ended func() bool) {
	w.Helper()
	w.begin()
	r := controller(f.client(), w.WithWatch)
	w.until("the transfer ends", func() bool {
		_, err := r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.transfer)})
		if errors.Is(err, errKilled) {
			r = controller(w.WithWatch, w.WithWatch)
		} else if err != nil {
			w.Fatal(err)
		}
		return ended()
	})
}

// completed reports whether the transfer has ended well, and nothing holds it.
func (w *world) completed() bool {
	w.must(w.Get(w.Context(), client.ObjectKeyFromObject(w.transfer), w.transfer))
	return w.transfer.Status.Phase == cdiv1.ObjectTransferComplete && len(w.transfer.Finalizers) == 0
}

func (w *world) gone() bool {
	return apierrors.IsNotFound(w.Get(w.Context(), client.ObjectKeyFromObject(w.transfer), &cdiv1.ObjectTransfer{}))
}

// ends checks a transfer that has ended well.
func (w *world) ends() {
	w.Helper()
	w.isAt(w.to)
	status := w.transfer.Status
	if len(status.Data) > 0 || status.Conditions[0].Status != corev1.ConditionTrue || status.Conditions[0].Message != sayComplete {
		w.Errorf("the status is %+v", status)
	}
}

// TestAKilledControllerIsTakenUp kills the controller before each of its writes, which is after the one before, and lets another
// go on: each time the disk arrives. What is done for a claim is done for a DataVolume, too.
func TestAKilledControllerIsTakenUp(t *testing.T) {
	c, _ := start(t)
	last := writes(t, c, kindDataVolume)
	for at := 1; at <= last; at++ {
		t.Run(fmt.Sprintf("at-%d", at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c, kindDataVolume)
			w.live(&faults{WithWatch: c, at: at, strike: func() error { return errKilled }}, w.completed)
			w.ends()
		})
	}
}

// writes is how many writes the controller makes for a transfer that nothing happens to.
func writes(t *testing.T, c client.WithWatch, kind string) int {
	t.Helper()
	unharmed, counter := newWorld(t, c, kind), &faults{WithWatch: c}
	unharmed.live(counter, unharmed.completed)
	unharmed.ends()
	if counter.count < 12 {
		t.Fatalf("only %d writes", counter.count)
	}
	return counter.count
}

// TestADeletedTransferEndsSomewhere deletes the transfer before each of the controller's writes: the disk is whole at one of
// the two places, and the transfer goes.
func TestADeletedTransferEndsSomewhere(t *testing.T) {
	c, _ := start(t)
	for _, kind := range []string{kindClaim, kindDataVolume} {
		last := writes(t, c, kind)
		for at := 2; at <= last; at++ { // the first write makes it stay
			t.Run(fmt.Sprintf("%s-at-%d", kind, at), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, c, kind)
				w.live(&faults{WithWatch: c, at: at, strike: func() error { return c.Delete(t.Context(), w.transfer) }}, w.gone)
				arrived := w.claim(w.to).UID != ""
				if early, late := at < 7, at > last-4; early && arrived || late && !arrived {
					t.Errorf("deleted before write %d of %d, it arrived: %t", at, last, arrived)
				}
				if arrived {
					w.isAt(w.to)
				} else {
					w.isAt(w.from)
				}
			})
		}
	}
}

// TestTheControllersRightsSuffice moves a disk with virt-controller's rights and no others.
func TestTheControllersRightsSuffice(t *testing.T) {
	c, config := start(t)
	own := apiserver.As(t, config, "virt-controller", "../hyperconverged/components/virt-controller/rbac.yaml", &cdiv1.ObjectTransferList{})
	for _, kind := range []string{kindClaim, kindDataVolume} {
		w := newWorld(t, c, kind)
		w.begin()
		r := controller(own, own)
		w.until("the transfer ends", func() bool {
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.transfer)})
			w.must(err)
			return w.completed()
		})
		w.ends()
	}
}

// TestWhatNothingTellsOfIsLookedAtAgain puts in the way what virt-controller hears nothing of, so that it must look again by itself.
func TestWhatNothingTellsOfIsLookedAtAgain(t *testing.T) {
	c, _ := start(t)
	for message, put := range map[string]func(*world) client.Object{
		sayPods:   func(w *world) client.Object { return w.pod(w.from) },
		sayCloned: func(w *world) client.Object { return w.clone() },
	} {
		t.Run(message, func(t *testing.T) {
			w := newWorld(t, c, kindClaim)
			object := put(w)
			w.begin()
			r := controller(c, c)
			pass := func() ctrl.Result {
				result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.transfer)})
				w.must(err)
				w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.transfer), w.transfer))
				return result
			}
			w.until("the transfer waits", func() bool {
				result, waits := pass(), w.transfer.Status.Conditions
				is := len(waits) > 0 && waits[0].Message == message && strings.Contains(waits[0].Reason, object.GetName())
				if is && result.RequeueAfter != retry {
					t.Errorf("it looks again after %s", result.RequeueAfter)
				}
				return is
			})
			if claim := w.claim(w.from); claim.DeletionTimestamp != nil || claim.Annotations[AnnotationName] != "" {
				t.Errorf("the source is %+v", claim)
			}
			w.must(w.Delete(t.Context(), object, client.GracePeriodSeconds(0)))
			w.until("the transfer ends", func() bool { pass(); return w.completed() })
			w.ends()
		})
	}
}

// clone makes a claim whose driver is yet to make it from the source.
func (w *world) clone() *corev1.PersistentVolumeClaim {
	w.Helper()
	clone := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.from.Namespace, Name: "clone"}, Spec: *w.claim(w.from).Spec.DeepCopy()}
	clone.Spec.VolumeName, clone.Spec.DataSource = "", &corev1.TypedLocalObjectReference{Kind: kindClaim, Name: w.from.Name}
	w.must(w.Create(w.Context(), clone))
	return clone
}
