package vmexport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	exportv1 "kubevirt.io/api/export/v1beta1"

	"github.com/slipway-vm/slipway/internal/vmexport"
)

// maxManifest is how long a definition may be, in bytes: a Secret has it.
const maxManifest = 4 << 20

// validateManifest says what is wrong with the flags about definitions, and sends them to standard output unless
// a file is named.
func (d *Download) validateManifest() error {
	switch {
	case !d.manifest && (d.secret || d.manifestFormat != ""):
		return errors.New("--include-secret and --manifest-output-format need --manifest")
	case !d.manifest:
		return nil
	case d.volume != "" || d.format != "":
		return errors.New("the '--manifest' flag is incompatible with '--volume' and '--format'")
	case d.manifestFormat != "" && d.manifestFormat != "yaml" && d.manifestFormat != "json":
		return fmt.Errorf("%s is not a valid value, acceptable values are json or yaml", d.manifestFormat)
	case d.output == "":
		d.output = stdoutName
	}
	return nil
}

// define writes the definition of the VM.
func (d *download) define(ctx context.Context) error {
	var text []byte
	err := d.retried(ctx, func() (err error) {
		text, err = d.definition(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if d.output == stdoutName {
		_, err = d.stdout.Write(text)
	} else {
		err = writePrivately(d.output, text) // a token may be in it
	}
	if err != nil {
		return fmt.Errorf("writing the definition: %w", err)
	}
	return nil
}

// definition asks the export's server for the definition, once there is one.
func (d *download) definition(ctx context.Context) ([]byte, error) {
	link, inside, err := d.ready(ctx)
	if err != nil {
		return nil, err
	}
	urls := map[exportv1.ExportManifestType]string{}
	for _, manifest := range link.Manifests {
		urls[manifest.Type] = manifest.Url
	}
	wanted := []exportv1.ExportManifestType{exportv1.AllManifests}
	if d.secret {
		wanted = append(wanted, exportv1.AuthHeader)
	}
	token, err := d.token(ctx)
	if err != nil {
		return nil, err
	}
	server, err := d.reach(ctx, link, inside)
	if err != nil {
		return nil, err
	}
	defer server.close()
	var text []byte
	for _, one := range wanted {
		if urls[one] == "" {
			return nil, fmt.Errorf("unable to access the manifest info from '%s' VirtualMachineExport: only exports of VMs and their snapshots have one", d.key)
		}
		body, err := d.read(ctx, server, urls[one], token)
		if err != nil {
			return nil, err
		}
		text = append(text, body...)
	}
	return text, nil
}

// writePrivately writes a file that only the user may read, also in the place of one that others may.
func writePrivately(name string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*"+partial)
	if err != nil {
		return fmt.Errorf("creating a file beside %s: %w", name, err)
	}
	if _, err = file.Write(text); err == nil {
		err = named(file, name)
	}
	if err != nil {
		_, _ = file.Close(), os.Remove(file.Name()) // it is of no use
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// read asks the server for what is at address.
func (d *download) read(ctx context.Context, from *server, address, token string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("downloading: %w", err)
	}
	request.Header.Set(vmexport.Token, token)
	request.Header.Set("Accept", "application/yaml")
	if d.manifestFormat == "json" {
		request.Header.Set("Accept", "application/json")
	}
	response, err := from.http.Do(request)
	if err != nil {
		return nil, from.unreached(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, refusal(response)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxManifest))
	if err != nil {
		return nil, broken{fmt.Errorf("downloading: %w", err)}
	}
	return body, nil
}
