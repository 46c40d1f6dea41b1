//go:build integration

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/importer/uploadserver"
	"github.com/slipway-vm/slipway/internal/upload"
)

// playKubelet binds claims, and runs the programs of upload servers' pods with what they were given, one at a time.
func (y *yard) playKubelet(ctx context.Context, dir string) error {
	for served := map[string]bool{}; ctx.Err() == nil; {
		var claims corev1.PersistentVolumeClaimList
		if err := y.List(ctx, &claims, client.InNamespace(shop)); err != nil {
			return ended(ctx, err)
		}
		for n := range claims.Items {
			if claim := &claims.Items[n]; claim.Status.Phase != corev1.ClaimBound {
				if err := y.bindClaim(ctx, claim); err != nil && !apierrors.IsConflict(err) {
					return ended(ctx, err)
				}
			}
		}
		var pods corev1.PodList
		if err := y.List(ctx, &pods, client.InNamespace(shop)); err != nil {
			return ended(ctx, err)
		}
		for n := range pods.Items {
			pod, secret := &pods.Items[n], &corev1.Secret{}
			for _, volume := range pod.Spec.Volumes {
				if !served[pod.Name] && volume.Secret != nil && y.Get(ctx, client.ObjectKey{Namespace: shop, Name: volume.Secret.SecretName}, secret) == nil {
					served[pod.Name] = true
					if err := y.runPod(ctx, pod, dir, secret); err != nil {
						return ended(ctx, err)
					}
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// bindClaim gives the claim a volume.
func (y *yard) bindClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName == "" {
		claim.Spec.VolumeName = "pv-" + string(claim.UID)
		if err := y.Update(ctx, claim); err != nil {
			return err
		}
	}
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.Resources.Requests
	return y.Status().Update(ctx, claim)
}

// ended is err, unless the test is over.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (y *yard) runPod(ctx context.Context, pod *corev1.Pod, dir string, secret *corev1.Secret) error {
	for name, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	if err := y.setPod(ctx, pod.Name, corev1.PodRunning, corev1.ConditionTrue, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}); err != nil {
		return err
	}
	log := filepath.Join(dir, "termination-log")
	options := importer.Options{Target: target.Options{Path: filepath.Join(y.volume, "disk.img"), Size: uploadSize}}
	if slices.Contains(pod.Spec.Containers[0].Args, "--archive") {
		options.Archive, options.Target.Path = true, y.volume
	}
	err := uploadserver.Run(ctx, uploadserver.Options{
		Import:  options,
		Address: y.server, ProgressAddress: "localhost:0", Token: "t", CertDir: dir, Client: upload.ClientName, TerminationLog: log,
	})
	if err != nil {
		return err
	}
	message, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	return y.setPod(ctx, pod.Name, corev1.PodSucceeded, corev1.ConditionFalse, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(message)}})
}

func (y *yard) setPod(ctx context.Context, name string, phase corev1.PodPhase, ready corev1.ConditionStatus, state corev1.ContainerState) error {
	pod := &corev1.Pod{}
	if err := y.Get(ctx, client.ObjectKey{Namespace: shop, Name: name}, pod); err != nil {
		return err
	}
	pod.Status.Phase = phase
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "cdi-upload-server", State: state}}
	return y.Status().Update(ctx, pod)
}
