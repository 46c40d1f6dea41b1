package restorestepcache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/cached"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// labelRun marks what a TaskRun made, by which its retry finds it.
const labelRun = names.Domain + "taskrun-uid"

// tools are the tasks that steps may name, with the programs that they run.
var tools = map[string]string{"disk-virt-customize": "virt-customize", "disk-virt-sysprep": "virt-sysprep"}

// step is a step as the parameter has it.
type step struct{ tool, options, commands string }

// readChain reads the parameters.
func readChain(call *declare.Call) (*chain, error) {
	c := &chain{call: call, store: cached.Store(call)}
	var err error
	if c.options, err = cached.Read(call); err != nil {
		return nil, err
	}
	if c.volume, err = readVolume(call); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	for n, text := range call.Array("steps") {
		s, err := readStep(text)
		if err != nil {
			return nil, fmt.Errorf("steps: item %d: %w", n+1, err)
		}
		c.steps = append(c.steps, s)
	}
	return c, nil
}

// readVolume reads the DataVolume strictly and gives it its name: the same one in each try of a run.
func readVolume(call *declare.Call) (*cdiv1.DataVolume, error) {
	dv := &cdiv1.DataVolume{}
	if err := yaml.UnmarshalStrict([]byte(call.String("manifest")), dv); err != nil {
		return nil, fmt.Errorf("could not read data object manifest: %w", err)
	}
	switch {
	case dv.Kind != "DataVolume" || dv.APIVersion != cdiv1.SchemeGroupVersion.String():
		return nil, fmt.Errorf("could not identify data object, wrong group or kind: %s %s; it takes a DataVolume of %s", dv.APIVersion, dv.Kind, cdiv1.SchemeGroupVersion)
	case dv.Name == "" && dv.GenerateName == "":
		return nil, errors.New("metadata.name or metadata.generateName is required")
	case dv.Namespace != "" && dv.Namespace != call.Namespace:
		return nil, fmt.Errorf("metadata.namespace: %s is not the run's namespace %s; leave it out", dv.Namespace, call.Namespace)
	case dv.Spec.Source == nil || dv.Spec.Source.HTTP == nil:
		return nil, errors.New("spec.source.http is required: only what is imported from a URL is cached")
	}
	dv.Namespace = call.Namespace
	if dv.Name == "" {
		seed := sha256.Sum256([]byte(string(call.TaskRunUID) + "/" + call.TaskRun.Name))
		dv.Name = dv.GenerateName + hex.EncodeToString(seed[:])[:5]
		dv.GenerateName = ""
	}
	if call.TaskRunUID != "" {
		if dv.Labels == nil {
			dv.Labels = map[string]string{}
		}
		dv.Labels[labelRun] = string(call.TaskRunUID)
	}
	return dv, own(call, dv)
}

// own makes the TaskRun own the volume, if it shall.
func own(call *declare.Call, dv *cdiv1.DataVolume) error {
	wanted, err := call.Bool("setOwnerReference")
	if err != nil || !wanted {
		return err
	}
	owner, err := call.Owner()
	if err != nil {
		return err
	}
	dv.OwnerReferences = append(dv.OwnerReferences, owner)
	return nil
}

// readStep reads "task [options]" and the lines of commands below it.
func readStep(text string) (step, error) {
	first, commands, _ := strings.Cut(text, "\n")
	task, options, _ := strings.Cut(strings.TrimSpace(first), " ")
	tool, ok := tools[task]
	if !ok {
		return step{}, fmt.Errorf("its first line names task %q; write disk-virt-customize or disk-virt-sysprep, then the options of additionalVirtOptions, and the commands in the lines below", task)
	}
	return step{tool: tool, options: options, commands: commands}, nil
}
