package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/env"
)

// Names of what the demo makes.
const (
	namespace = env.NamespaceDemo
	imageName = "debian-demo"
	vmName    = "demo-vm"
	motd      = "Built by a Slipway pipeline"
)

// boundTasks is how long the operator may take to deploy the tasks, and a VM to start or go.
const boundTasks = 10 * time.Minute

// demo is one run of the demo.
type demo struct {
	settings
	out     io.Writer
	cluster *env.Cluster
	// keyFile is the private key that may log in to the second VM, publicKey its other half.
	keyFile, publicKey string
	run                *tektonv1.PipelineRun
	times              []timed
}

// timed is a step and how long it took.
type timed struct {
	name string
	took time.Duration
}

// prepare makes what the pipeline needs: a namespace with the tasks, a key to log in with, and no
// VM of an earlier run.
func (d *demo) prepare(ctx context.Context) error {
	if err := d.cluster.Namespace(ctx, namespace); err != nil {
		return err
	}
	pipeline := &tektonv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "golden-image"}}
	err := d.cluster.Await(ctx, d.out, pipeline, boundTasks, func(client.Object) (string, bool, error) { return "deployed by the operator", true, nil })
	if err != nil {
		return err
	}
	old := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: vmName}}
	if err := d.cluster.Client.Delete(ctx, old); err == nil {
		if err := d.cluster.Gone(ctx, d.out, old, boundTasks); err != nil {
			return err
		}
		volume := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: vmName}}
		if err := d.cluster.Gone(ctx, d.out, volume, boundTasks); err != nil {
			return err
		}
	} else if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the VM of an earlier demo: %w", err)
	}
	return d.makeKey()
}

// makeKey makes a key pair in bin/demo, or takes the one of an earlier run.
func (d *demo) makeKey() error {
	d.keyFile = filepath.Join(d.cluster.Root, "bin/demo/id_ed25519")
	data, err := os.ReadFile(d.keyFile)
	if errors.Is(err, os.ErrNotExist) {
		data, err = newKey(d.keyFile)
	}
	if err != nil {
		return fmt.Errorf("making a key to log in with: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return fmt.Errorf("reading %s: %w; remove the file and run the demo again", d.keyFile, err)
	}
	d.publicKey = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	return nil
}

func newKey(path string) ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "slipway demo")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	data := pem.EncodeToMemory(block)
	return data, os.WriteFile(path, data, 0o600)
}

// pipeline starts a run of golden-image and follows it to its end.
func (d *demo) pipeline(ctx context.Context) error {
	run, err := d.newRun()
	if err != nil {
		return err
	}
	if err := d.cluster.Client.Create(ctx, run); err != nil {
		return fmt.Errorf("creating the PipelineRun: %w", err)
	}
	fmt.Fprintf(d.out, "PipelineRun %s/%s\n", namespace, run.Name)
	d.run = run
	return d.follow(ctx)
}

// newRun is the run that the project ships to copy, with the demo's values.
func (d *demo) newRun() (*tektonv1.PipelineRun, error) {
	data, err := os.ReadFile(filepath.Join(d.cluster.Root, "pipelines/golden-image/run.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the run to copy: %w", err)
	}
	run := &tektonv1.PipelineRun{}
	if err := yaml.UnmarshalStrict(data, run); err != nil {
		return nil, fmt.Errorf("reading pipelines/golden-image/run.yaml: %w", err)
	}
	run.Namespace = namespace
	run.Spec.Params = nil
	for _, p := range [][2]string{
		{"imageURL", d.imageURL}, {"imageName", imageName}, {"diskSize", d.size}, {"guestUser", d.user},
		{"virtCommands", "write /etc/motd:" + motd + "\nhostname golden\n"},
		{"checkScript", "cat /etc/motd; uname -sr; grep -q '" + motd + "' /etc/motd"},
		{"defaultInstancetype", "u1.nano"}, {"defaultPreference", "linux"},
		{"vmName", vmName}, {"sshPublicKey", d.publicKey},
	} {
		run.Spec.Params = append(run.Spec.Params, tektonv1.Param{Name: p[0], Value: *tektonv1.NewStructuredValues(p[1])})
	}
	return run, nil
}

// check makes sure that the second VM runs and that the first is gone.
func (d *demo) check(ctx context.Context) error {
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: vmName}}
	err := d.cluster.Await(ctx, d.out, vm, boundTasks, func(obj client.Object) (string, bool, error) {
		status := obj.(*virtv1.VirtualMachine).Status
		return string(status.PrintableStatus), status.Ready, nil
	})
	if err != nil {
		return err
	}
	var vms virtv1.VirtualMachineList
	if err := d.cluster.Client.List(ctx, &vms, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing VMs: %w", err)
	}
	for _, vm := range vms.Items {
		if strings.HasSuffix(vm.Name, "-check") && vm.DeletionTimestamp == nil && strings.HasPrefix(vm.Name, imageName) {
			return fmt.Errorf("VM %s, which the pipeline should have cleaned up, is still there", vm.Name)
		}
	}
	return nil
}
