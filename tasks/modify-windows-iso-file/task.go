// Package modifywindowsisofile makes a Windows installation disc boot without a key press.
package modifywindowsisofile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/claim"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/modify-windows-iso-file/iso"
)

// codeFailed is the exit code that the field's task ends with.
const codeFailed = 1

const paramClaim = "pvcName"

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "modify-windows-iso-file",
		Title:   "Make a Windows disc boot without a key press",
		Summary: "Makes the Windows installation disc in a PersistentVolumeClaim boot by EFI without \"Press any key to boot from CD or DVD\", by the boot files without a prompt that the disc brings.",
		Details: details,
		Image:   declare.Slipway,
		Disk:    paramClaim,
		Params: []declare.Param{
			{Name: paramClaim, Description: "PersistentVolumeClaim with the Windows iso file: its device (volumeMode Block), or disk.img in its file system. No VM may use it meanwhile.", Object: declare.Claim},
		},
		Rules: []rbacv1.PolicyRule{claim.Rule},
		// The field's task needs no rights: a run with none goes on.
		ClientOptional: true,
		Examples: []declare.Example{{
			Title:  "Prepare a disc for an unattended installation",
			Params: map[string]any{paramClaim: "windows-iso"},
		}},
		Run: run,
	}
}

const details = `
The disc brings two forms of its boot files for EFI, with and without the prompt. The task makes efisys.bin and cdboot.efi the same
as efisys_noprompt.bin and cdboot_noprompt.efi, and the boot catalogue start the latter. It changes only where the disc says
that these files lie: a few sectors, in place, in moments, with no copy of the disc and no further space. All other files, UDF and
names stay as they are. What it wrote it reads again, and puts the old sectors back when they differ; when it is interrupted
the disc is whole, and another run ends what is left. A disc that is done already is left alone.

Exit codes: 1 the disc lacks the files without a prompt or cannot be changed, 255 a parameter is wrong or the disk cannot be used.`

func run(ctx context.Context, call *declare.Call) error {
	if call.String(paramClaim) == "" {
		return declare.Coded(declare.CodeUsage, fmt.Errorf("%s: name the PersistentVolumeClaim with the Windows iso file", paramClaim))
	}
	path, err := disk(ctx, call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return declare.Coded(codeFailed, fmt.Errorf("opening the iso file: %w", err))
	}
	changed, err := change(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return declare.Coded(codeFailed, err)
	}
	if changed == 0 {
		call.Log.Info("the iso file boots without a prompt already; nothing was changed")
		return nil
	}
	call.Log.Info("the iso file boots without a prompt now", "changedSectors", changed)
	return nil
}

// disk returns the path of the disk once it is sure that nobody else uses it.
func disk(ctx context.Context, call *declare.Call) (string, error) {
	key := client.ObjectKey{Namespace: call.Namespace, Name: call.String(paramClaim)}
	if err := claim.Free(ctx, call.Client, call.Log, key); err != nil {
		return "", err
	}
	path, err := claim.Find(call, paramClaim, true)
	if err != nil {
		return "", err
	}
	if err := claim.Unlocked(path); err != nil {
		return "", fmt.Errorf("%s: claim %s: %w", paramClaim, key.Name, err)
	}
	return path, nil
}

// bootFolder holds the boot files for EFI.
var bootFolder = []string{"efi", "microsoft", "boot"}

// The boot files with a prompt, and those without it that take their place.
const (
	efisys         = "efisys.bin"
	efisysNoPrompt = "efisys_noprompt.bin"
	cdboot         = "cdboot.efi"
	cdbootNoPrompt = "cdboot_noprompt.efi"
)

func boot(name string) []string { return append(slices.Clip(bootFolder), name) }

// change makes the disc boot without a prompt and returns how many sectors that took.
func change(file *os.File) (int, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("finding the size of the iso file: %w", err)
	}
	image, err := iso.Open(file, size)
	if err != nil {
		return 0, fmt.Errorf("reading the iso file: %w", err)
	}
	if err := brings(image); err != nil {
		return 0, err
	}
	for name, other := range map[string]string{efisys: efisysNoPrompt, cdboot: cdbootNoPrompt} {
		if err := image.Point(boot(name), boot(other)); err != nil {
			return 0, fmt.Errorf("changing the iso file: %w", err)
		}
	}
	if err := image.BootEFI(boot(efisysNoPrompt)...); err != nil {
		return 0, fmt.Errorf("changing the iso file: %w", err)
	}
	for name, other := range map[string]string{efisys: efisysNoPrompt, cdboot: cdbootNoPrompt} {
		if err := same(image, boot(name), boot(other)); err != nil {
			return 0, fmt.Errorf("checking the changed iso file: %w", err)
		}
	}
	changed, err := image.Commit(file)
	if err != nil {
		return 0, fmt.Errorf("changing the iso file: %w", err)
	}
	return changed, nil
}

// brings makes sure that the disc has the files without a prompt.
func brings(image *iso.Image) error {
	for _, name := range []string{efisysNoPrompt, cdbootNoPrompt} {
		found, err := image.Has(boot(name)...)
		if err != nil {
			return fmt.Errorf("reading the iso file: %w", err)
		}
		if !found {
			return fmt.Errorf("%s or %s not found in the iso file! Task expects that ISO file contains bootloader without prompt. "+
				"If the no prompt bootloader is not present, the installation might behave unexpectedly. Exiting",
				strings.Join(boot(efisysNoPrompt), "/"), strings.Join(boot(cdbootNoPrompt), "/"))
		}
	}
	return nil
}

// same makes sure that, with the changes, two files are the same wherever they are.
func same(image *iso.Image, path, other []string) error {
	got, err := image.Contents(path...)
	if err != nil {
		return err
	}
	want, err := image.Contents(other...)
	if err != nil {
		return err
	}
	for _, content := range got {
		if !bytes.Equal(content, want[0]) {
			return fmt.Errorf("%s is not the same as %s everywhere", strings.Join(path, "/"), strings.Join(other, "/"))
		}
	}
	return nil
}
