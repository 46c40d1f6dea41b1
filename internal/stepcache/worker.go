package stepcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
)

// How long a worker pod may wait for a node and its volumes, and take altogether.
const (
	startBound  = 2 * time.Minute
	workerBound = 30 * time.Minute
)

// statusBound is how long the node may take to say which image a pod runs: the run begins before
// its node has reported that, on a busy node seconds before.
const statusBound = time.Minute

// Places in a worker pod.
const (
	workerContainer = "step-cache"
	entryDir        = "/entry"
	entryDevice     = "/dev/step-cache-entry"
	targetDir       = "/target"
	targetDevice    = "/dev/step-cache-target"
)

// Host is the pod that a run is in. Its worker pods have its image and go with it.
type Host struct {
	Namespace, Name string
	Pod             *corev1.Pod
	// Image is the reference of the image, ImageDigest what the node says that it runs.
	Image, ImageDigest string
	// Program is the path of slipway in the image.
	Program string
}

// stepPrefix begins the names of containers that are steps of a TaskRun.
const stepPrefix = "step-"

// FindHost reads the run's own pod, of which program is the one step.
func (s *Store) FindHost(ctx context.Context, name, program string) (*Host, error) {
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: s.Run.Namespace, Name: name}
	if err := s.Client.Get(ctx, key, pod); err != nil {
		return nil, fmt.Errorf("reading this run's pod %s: %w", key, err)
	}
	h := &Host{Namespace: key.Namespace, Name: key.Name, Pod: pod, Program: program}
	container := ""
	for _, c := range pod.Spec.Containers {
		if !strings.HasPrefix(c.Name, stepPrefix) {
			continue
		}
		if container != "" {
			return nil, fmt.Errorf("this run's pod %s has the steps %s and %s: which of them is this one is not known", key, container, c.Name)
		}
		container, h.Image = c.Name, c.Image
	}
	if container == "" {
		return nil, fmt.Errorf("this run's pod %s has no container whose name begins with %s", key, stepPrefix)
	}
	id, err := s.imageID(ctx, pod, container)
	if err != nil {
		return nil, err
	}
	h.ImageDigest = imageDigest(id)
	return h, nil
}

// imageID returns what the node says that the pod's container runs; it waits until the node says
// it, and returns nothing when it does not within statusBound.
func (s *Store) imageID(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	bounded, stop := context.WithTimeout(ctx, statusBound)
	defer stop()
	id, key := "", client.ObjectKeyFromObject(pod)
	reported := func(pod *corev1.Pod, exists bool) (bool, error) {
		if !exists {
			return false, fmt.Errorf("this run's pod %s was deleted", key)
		}
		for _, status := range pod.Status.ContainerStatuses {
			if status.Name == container {
				id = status.ImageID
			}
		}
		return id != "", nil
	}
	if done, _ := reported(pod, true); done {
		return id, nil
	}
	err := await.Object(bounded, s.Client, &corev1.PodList{}, key, reported)
	if err != nil && (ctx.Err() != nil || bounded.Err() == nil) {
		return "", fmt.Errorf("waiting for the image of this run's pod %s to be reported: %w", key, err)
	}
	return id, nil
}

// imageDigest takes the digest out of an image's ID, such as "registry/image@sha256:…"; empty when there is none.
func imageDigest(id string) string {
	at := strings.LastIndex(id, "sha256:")
	if at < 0 || !isSHA256(id[at:]) {
		return ""
	}
	return id[at:]
}

// Target is the claim that an entry's disk is put into.
type Target struct {
	// Claim is its name; empty for none.
	Claim string
	// Block says that it is a device.
	Block bool
}

// buildWorker returns the pod that reads the entry, and puts its disk into the target if there is one.
func buildWorker(h *Host, e *Entry, target Target) *corev1.Pod {
	user := int64(names.QEMUUser)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: e.Name + "-", Namespace: h.Namespace,
			Labels: map[string]string{
				names.LabelPod: KindWorker, names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "step-cache",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: h.Name, UID: h.Pod.UID}},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			ImagePullSecrets: h.Pod.Spec.ImagePullSecrets, Tolerations: h.Pod.Spec.Tolerations,
			ActiveDeadlineSeconds: new(int64(workerBound / time.Second)), TerminationGracePeriodSeconds: new(int64(1)), // with 0 it were gone before its processes
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: &user, RunAsGroup: &user, FSGroup: &user, RunAsNonRoot: new(true),
				FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
				SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
	container := corev1.Container{
		Name: workerContainer, Image: h.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:                []string{h.Program, "step-cache"},
		Args:                   []string{"--digest=" + e.Digest, "--report=" + corev1.TerminationMessagePathDefault},
		TerminationMessagePath: corev1.TerminationMessagePathDefault,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("48Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	addDisk(pod, &container, "entry", Target{Claim: e.Name, Block: e.Mode == corev1.PersistentVolumeBlock})
	if target.Claim != "" {
		addDisk(pod, &container, "target", target)
		pod.Spec.Affinity = beside(h.Pod.Spec.NodeName)
	}
	if target.Block {
		container.Args = append(container.Args, "--in-place")
	}
	pod.Spec.Containers = []corev1.Container{container}
	return pod
}

// beside places a pod on the node: a claim of ReadWriteOnce is on one node at a time.
func beside(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}}},
	}}}
}

// addDisk gives the container the disk of a claim, and its program the disk's path by the flag of
// that name. The program writes to the target only.
func addDisk(pod *corev1.Pod, container *corev1.Container, name string, of Target) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: of.Claim},
	}})
	folder, device := entryDir, entryDevice
	if name == "target" {
		folder, device = targetDir, targetDevice
	}
	if of.Block {
		container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: device})
		container.Args = append(container.Args, "--"+name+"="+device)
		return
	}
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: folder, ReadOnly: name == "entry"})
	container.Args = append(container.Args, "--"+name+"="+folder+"/"+names.DiskFile)
}

// Verify reads the entry in a pod; ErrPoisoned means that its content is another one.
func (s *Store) Verify(ctx context.Context, h *Host, e *Entry) error {
	_, err := s.work(ctx, h, e, Target{})
	return err
}

// Outcome is what came of putting an entry's disk into a claim.
type Outcome struct {
	// How says how it was done.
	How string
	// Half says, with an error, that the claim's device may be neither the disk before nor the entry's,
	// or that a pod which does not end may still put the entry's disk into the claim.
	Half bool
}

// Restore puts the entry's disk in the place of the one in the target, which h has mounted: a file
// as a whole or not at all, a device block by block. ErrPoisoned is as for Verify.
func (s *Store) Restore(ctx context.Context, h *Host, e *Entry, target Target) (Outcome, error) {
	return s.work(ctx, h, e, target)
}

func (s *Store) work(ctx context.Context, h *Host, e *Entry, target Target) (Outcome, error) {
	pod := buildWorker(h, e, target)
	if err := s.Client.Create(ctx, pod, client.FieldOwner(FieldManager)); err != nil {
		return Outcome{}, fmt.Errorf("creating the pod that reads entry %s: %w", e.Name, err)
	}
	err := s.awaitEnd(ctx, pod)
	dropped := s.dropPod(ctx, pod)
	if err == nil {
		o, err := outcome(pod, e, target)
		return o, errors.Join(err, dropped)
	}
	half := target.Block && pod.Spec.NodeName != "" // nobody knows how far it came once it is on a node
	if target.Claim != "" && ctx.Err() == nil {
		gone := s.awaitGone(ctx, pod)
		half, err = half || gone != nil, errors.Join(err, gone) // it may go on yet
	}
	return Outcome{Half: half}, errors.Join(err, dropped)
}

// Settle waits for the end of pods that earlier tries of this run, or of others, have put an entry's
// disk into the claim with: until then nobody knows what it holds. One that does not end is deleted.
func (s *Store) Settle(ctx context.Context, claim string) error {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(s.Run.Namespace), client.MatchingLabels{names.LabelPod: KindWorker}); err != nil {
		return fmt.Errorf("looking for pods that still write to claim %s: %w", claim, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !writesTo(pod, claim) {
			continue
		}
		s.Log.Info("waiting for the pod of an earlier try, which writes to the claim", "pod", pod.Name, "claim", claim)
		if pod.DeletionTimestamp == nil {
			if err := s.awaitEnd(ctx, pod); ctx.Err() != nil {
				return err
			}
		}
		if err := s.dropPod(ctx, pod); err != nil {
			return err
		}
		if err := s.awaitGone(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// writesTo says whether the claim is the worker's target.
func writesTo(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == "target" && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// awaitEnd waits until the pod has ended, which its node sees to within workerBound; pod is then as it was seen last.
func (s *Store) awaitEnd(ctx context.Context, pod *corev1.Pod) error {
	starting, stop := context.WithTimeoutCause(ctx, startBound, errors.New("it did not start in time"))
	defer stop()
	if err := s.awaitPod(starting, pod, func(p corev1.PodPhase) bool { return p != corev1.PodPending }); err != nil {
		return err
	}
	ending, stop := context.WithTimeoutCause(ctx, workerBound+startBound, errors.New("its node does not end it"))
	defer stop()
	return s.awaitPod(ending, pod, func(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed })
}

// awaitGone waits until the pod is gone, and with it its processes.
func (s *Store) awaitGone(ctx context.Context, pod *corev1.Pod) error {
	key := client.ObjectKeyFromObject(pod)
	bounded, stop := context.WithTimeoutCause(ctx, startBound, errors.New("its node does not answer"))
	defer stop()
	err := await.Object(bounded, s.Client, &corev1.PodList{}, key, func(now *corev1.Pod, exists bool) (bool, error) {
		return !exists || now.UID != pod.UID, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until pod %s, which wrote to the claim, is gone: %w", key, err)
	}
	return nil
}

// awaitPod waits until the pod is in a phase as asked for; pod is then as it was seen last.
func (s *Store) awaitPod(ctx context.Context, pod *corev1.Pod, as func(corev1.PodPhase) bool) error {
	key, uid := client.ObjectKeyFromObject(pod), pod.UID
	err := await.Object(ctx, s.Client, &corev1.PodList{}, key, func(now *corev1.Pod, exists bool) (bool, error) {
		if !exists || now.UID != uid {
			return false, fmt.Errorf("pod %s was deleted", key)
		}
		now.DeepCopyInto(pod)
		return as(now.Status.Phase), nil
	})
	if err != nil && ctx.Err() != nil {
		why := []string{context.Cause(ctx).Error()}
		for _, c := range pod.Status.Conditions {
			if c.Status == corev1.ConditionFalse && c.Message != "" {
				why = append(why, c.Message)
			}
		}
		return fmt.Errorf("pod %s, which reads the entry: %s", key, strings.Join(why, "; "))
	}
	return err
}

// outcome reads what the pod ended with.
func outcome(pod *corev1.Pod, e *Entry, target Target) (Outcome, error) {
	r := report{}
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			if err := json.Unmarshal([]byte(ended.Message), &r); err != nil {
				return Outcome{Half: target.Block}, fmt.Errorf("pod %s ended with code %d and no report (%s)", pod.Name, ended.ExitCode, ended.Reason)
			}
		}
	}
	o := Outcome{How: r.How, Half: r.Half || target.Block && r == report{}}
	switch {
	case r.Poisoned:
		return o, fmt.Errorf("entry %s: %w: %s", e.Name, ErrPoisoned, r.Failure)
	case r.Failure != "" || pod.Status.Phase != corev1.PodSucceeded:
		return o, fmt.Errorf("pod %s failed: %s%s", pod.Name, r.Failure, pod.Status.Message)
	}
	return o, nil
}

func (s *Store) dropPod(ctx context.Context, pod *corev1.Pod) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
	defer stop()
	if err := s.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}
