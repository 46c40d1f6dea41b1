package vmexport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

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
	link, inside, err := d.links()
	if err != nil {
		return err
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
		return err
	}
	server, err := d.reach(ctx, link, inside)
	if err != nil {
		return err
	}
	defer server.close()
	var text []byte
	for _, one := range wanted {
		if urls[one] == "" {
			return fmt.Errorf("unable to access the manifest info from '%s' VirtualMachineExport: only exports of VMs and their snapshots have one", d.key)
		}
		body, err := d.read(ctx, server, urls[one], token)
		if err != nil {
			return err
		}
		text = append(text, body...)
	}
	if d.output == stdoutName {
		_, err = d.stdout.Write(text)
	} else {
		err = os.WriteFile(d.output, text, 0o600) // a token may be in it
	}
	if err != nil {
		return fmt.Errorf("writing the definition: %w", err)
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
		return nil, unreached(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, refusal(response)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("downloading: %w", err)
	}
	return body, nil
}
